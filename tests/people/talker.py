"""A process of its own in which a rater talks until it is killed, and says what was acknowledged.

python talker.py DATABASE RATER
"""

import sys

from tutelage.people import Answer, Assignment, open_store, submit
from tutelage.people.live_conversation import Talk, keep_answer, next_step, say


def main() -> None:
    store, rater = open_store(sys.argv[1]), int(sys.argv[2])
    number = 0
    while True:
        step = next_step(store, rater)
        if isinstance(step, Assignment):
            answer = Answer("left", 1)
            submit(store, step.id, answer)
            print("vote", answer.key, flush=True)
            continue
        assert isinstance(step, Talk)
        number += 1
        text = f"message {number}"
        turn = say(store, rater, step.conversation, text, text)
        print("said", text, flush=True)
        for place in (0, 1):
            keep_answer(store, turn, place, f"{place} on {text}", sampling={})
            print("answer", f"{place} on {text}", flush=True)


if __name__ == "__main__":
    main()
