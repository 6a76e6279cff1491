"""GRPO on rollouts of a real vLLM in the process that trains, as a program for its interpreter; prints JSON.

    .vllm/bin/python colocation.py MODEL RANK PATH...

Each PATH is a folder of packages, searched behind vLLM's own.
"""

import copy
import json
import site
import sys
from itertools import count


def train(folder: str, rank: int) -> dict:
    """Tokens before training as a server gives them, and what holds after each step."""
    from real_vllm.runs import FREE, GREEDY, PROMPTS, farthest, same_tokens, world
    from tutelage.rollout.colocated import ColocatedGenerator
    from tutelage.rollout.local import LocalGenerator

    run = world(folder, rank)
    generator = run.generator = ColocatedGenerator(run.policy, FREE.temperature)
    sleeping = generator.engine.llm_engine.is_sleeping
    generator.sync(0)
    before = generator.generate(PROMPTS, 4, FREE, seed=3)
    found = {
        "tokens": before.response[before.mask].tolist(),
        "logp": before.logp[before.mask].tolist(),
        "scores": [],
        "apart": [],
        "asleep": [],
        "repeated": [],
        "greedy": [],
    }
    for number, step in zip(count(), run.train(), strict=False):
        assert set(step.sample.version[step.sample.mask].tolist()) == {number}
        found["scores"].append(step.metrics["score/mean"])
        found["asleep"].append(sleeping())
        generator.sync(number + 1)
        assert not sleeping()
        sampled = generator.generate(PROMPTS, 4, FREE, seed=3)
        found["apart"].append(farthest(run.policy, sampled, FREE.temperature))
        found["repeated"].append(same_tokens(sampled, generator.generate(PROMPTS, 4, FREE, seed=3)))
        greedy = LocalGenerator(copy.deepcopy(run.policy)).generate(PROMPTS, 1, GREEDY, seed=0)
        found["greedy"].append(same_tokens(generator.generate(PROMPTS, 1, GREEDY, seed=0), greedy))
    return found


if __name__ == "__main__":
    for path in sys.argv[3:]:
        site.addsitedir(path)
    print(json.dumps(train(sys.argv[1], int(sys.argv[2]))))
