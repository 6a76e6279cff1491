"""Questions of the file of data, for the experiments that sample answers."""

from collections.abc import Sequence
from random import Random

from bench.quality.experiment import Place
from tutelage.data.formats import load_preferences
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Message, Prompt
from tutelage.models.policy import Policy
from tutelage.rollout.generator import encode_prompts
from tutelage.train.supervised.batches import Order


def questions(place: Place, policy: Policy, longest: int) -> list[Prompt]:
    """The first turns of the dialogues, each once, of at most `longest` tokens with the chat template, shuffled."""
    firsts = dict.fromkeys(pair.messages[0].content for pair in load_preferences(place.data).records)
    prompts = [Prompt(f"q{n}", (Message("user", text),)) for n, text in enumerate(firsts)]
    short = [one.prompt for one in encode_prompts(prompts, policy.tokenizer) if len(one.tokens) <= longest]
    Random(0).shuffle(short)
    return short


def write_prompts(place: Place, name: str, prompts: Sequence[Prompt]) -> str:
    """A file of prompts; the path."""
    file = place.runs / f"{name}.jsonl"
    write_jsonl(file, map(to_row, prompts))
    return str(file)


def in_order(prompts: Sequence[Prompt], batch: int, seed: int, steps: int) -> list[Prompt]:
    """The prompts as `improve` reads them in so many steps."""
    order = Order(prompts, batch, seed)
    return [prompt for step in range(steps) for prompt in order(step)]
