"""Requests, tokens and costs of the judges among rewards, before they are asked."""

import math
from collections.abc import Iterator, Sequence

from tutelage.base.nouns import counted
from tutelage.data.chat_endpoint import CHARACTERS, PaidEndpoint
from tutelage.data.records import Prompt
from tutelage.rewards.factory import rewards_without_model
from tutelage.rewards.reward import JudgingReward, made_of


def judging_costs(names: Sequence[str], prompts: Sequence[Prompt], completions: int) -> Iterator[str]:
    """A sentence for each judge among the rewards: what `completions` of every prompt cost, cached replies excepted.

    Tokens are those of the requests without the completions, with `CHARACTERS` characters each. Raises TutelageError
    for a row that the judge cannot read.
    """
    for name, reward in rewards_without_model(names).items():
        for part in made_of(reward):
            if isinstance(part, JudgingReward) and part.endpoint is not None:
                yield f"{name}: {_cost(part, part.endpoint, prompts, completions)}"


def _cost(judge: JudgingReward, endpoint: PaidEndpoint, prompts: Sequence[Prompt], completions: int) -> str:
    requests = [each for prompt in prompts for each in judge.questions(prompt, completions)]
    tokens = sum(number * math.ceil(len(request) / CHARACTERS) for request, number in requests)
    price = endpoint.prices.read
    cost = f", {tokens * price / 1e6:.2f} at the price of reading" if price else ""
    each = counted(completions, "completion")
    return (
        f"{each} of each of {counted(len(prompts), 'prompt')} take {counted(sum(n for _, n in requests), 'request')} "
        f"to {endpoint.endpoint.model}: {counted(tokens, 'token')} to read{cost}, besides the completions and its "
        "replies"
    )
