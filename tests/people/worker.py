"""A process of its own that rates until nothing is left, and says which answers were acknowledged.

python worker.py DATABASE RATER [BYTES]        BYTES limits the size of any file it may write
"""

import resource
import sys

from tutelage.base.errors import TutelageError
from tutelage.people import Answer, next_assignment, open_store, submit


def main() -> None:
    path, rater_id = sys.argv[1], int(sys.argv[2])
    store = open_store(path)
    if len(sys.argv) > 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
    try:
        while (question := next_assignment(store, rater_id)) is not None:
            answer = Answer("left", 1, reason="x" * 500)
            submit(store, question.id, answer)
            print(answer.key, flush=True)
    except TutelageError as error:
        print(f"refused: {error}", flush=True)


if __name__ == "__main__":
    main()
