"""GRPO with a tool: episodes of four calls and an answer, on the same environment object in both trainers.

The model has learnt what it writes: before each call the same sentence, and after the last one an answer. So episodes
have nearly the same tokens on both sides, and the reward, a number that is spread evenly, leaves no group without a
gradient.
"""

import itertools
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from bench.job import Job, Measurement, Needs, Place
from bench.jobs.grpo import Size

SHAPE = "6.8M-tools"
CALLS, LONGEST = 4, 96
"""Calls of an episode, and most tokens of a turn."""
TEMPERATURE = 0.5
"""Low enough that hardly any call has a mistake, after which the model does not know how to go on."""
SIZE = Size(prompts=4, prompt=0, samples=8, response=LONGEST)
BEGIN, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% if tools %}"
    + BEGIN
    + "system\nTools:{% for t in tools %}\n{{ t | tojson }}{% endfor %}"
    + END
    + "\n{% endif %}"
    "{% for m in messages %}" + BEGIN + "{{ m.role }}\n{{ m.content or '' }}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}\n<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}{% endif %}" + END + "\n{% endfor %}"
    "{% if add_generation_prompt %}" + BEGIN + "assistant\n{% endif %}"
)
THOUGHT = "I throw the die once more and add up what it shows each time."
QUESTIONS = ("Throw the die four times.", "Please roll four times.", "Four throws of the die!", "Roll it, four times.")


class Dice:
    """An environment in the form of TRL's: a die that is thrown four times."""

    rewards: ClassVar[Any] = itertools.count()

    def reset(self, **row: object) -> None:
        """Begin anew."""
        self.throws = 0

    def roll(self) -> str:
        """Throw the die once."""
        self.throws += 1
        return f"Throw {self.throws} of {CALLS} shows {self.throws % 6 + 1}."

    def get_reward(self) -> float:
        """Numbers of the golden ratio, spread evenly between 0 and 1."""
        return next(self.rewards) * 0.6180339887 % 1.0


def prepare(place: Place) -> None:
    """Write the prompts, and a model that has learnt to throw the die."""
    from bench.worlds import write

    write(place.job / "prompts.jsonl", [{"prompt": [{"role": "user", "content": text}]} for text in QUESTIONS])
    if not (Path(place.model) / "config.json").is_file():
        _train(place)
    place.note(prompts=len(QUESTIONS))


def _train(place: Place) -> None:
    import torch
    from transformers import LlamaForCausalLM

    import tutelage as tt
    from bench.worlds import llama_config, tokenizer_of, write
    from tutelage.rollout.tools.tool import tool_of

    folder = Path(place.model).with_name(f".{SHAPE}")
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = tokenizer_of(place.shape, place.world, special=(END, "<|pad|>", BEGIN), template=TEMPLATE)
    torch.manual_seed(place.seed)
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    LlamaForCausalLM(llama_config(place.shape, **ends)).save_pretrained(folder / "random")
    tokenizer.save_pretrained(folder / "random")
    schema = json.loads(tool_of(Dice().roll).schema)
    rows = [{"messages": _episode(text), "tools": [schema]} for text in QUESTIONS]
    write(folder / "episodes.jsonl", rows)
    learnt = {"answers": "every", "held_out": 0.0, "epochs": 60.0, "batch_size": 10, "optimiser": {"lr": 2e-3}}
    data, run = str(folder / "episodes.jsonl"), folder / "run"
    tt.sft(model=str(folder / "random"), data=data, out=run, samples=0, quiet=True, device=place.device, **learnt)
    (run / "model").rename(place.model)
    shutil.rmtree(folder)


def _episode(question: str) -> list[dict[str, Any]]:
    """An episode as it should be: each turn of the assistant is learnt."""
    world, messages = Dice(), [{"role": "user", "content": question}]
    world.reset()
    for number in range(CALLS):
        call = {"id": f"call0000{number}", "type": "function", "function": {"name": "roll", "arguments": {}}}
        messages.append({"role": "assistant", "content": THOUGHT, "tool_calls": [call]})
        messages.append({"role": "tool", "name": "roll", "tool_call_id": call["id"], "content": world.roll()})
    return [*messages, {"role": "assistant", "content": f"{THOUGHT} No, that was the last one: the sum is 14."}]


def settings(place: Place) -> Any:
    """Of `tutelage improve --recipe grpo --environment bench.jobs.tools:Dice`."""
    from bench.ours import common
    from tutelage.base import config
    from tutelage.commands.improve.settings import ImproveSettings

    return ImproveSettings(
        **common(place),
        prompts=str(place.job / "prompts.jsonl"),
        environment="bench.jobs.tools:Dice",
        turns=CALLS + 4,
        recipe="grpo",
        set=(f"samples={SIZE.samples}", "update.minibatches=1", "penalty.coef=0.04", "shaping.missing_end=none"),
        steps=place.steps + 1,
        batch_size=SIZE.prompts,
        sampling=config.Sampling(temperature=TEMPERATURE, max_new_tokens=LONGEST),
        sample_every=10_000,
    )


def ours(place: Place) -> Measurement:
    """`tutelage improve --environment`."""
    from bench.machine import product_rate
    from bench.ours import improved

    return improved(settings(place), partial(product_rate, place.device, place.dtype) if place.rated else None)


def theirs(place: Place) -> Measurement:
    """`GRPOTrainer(environment_factory=…)`, with the schema of responses of its Qwen 3, which our template follows."""
    import trl
    from trl.chat_template_utils import qwen3_template

    from bench.theirs import StepClock, common, load, rows

    sampled: list[int] = []

    class Trainer(trl.GRPOTrainer):  # type: ignore[misc, name-defined]
        def _generate_single_turn(self, *arguments: Any, **more: Any) -> Any:
            ids, logprobs = super()._generate_single_turn(*arguments, **more)
            sampled.append(sum(map(len, ids)))
            return ids, logprobs

    model, tokenizer = load(place)
    tokenizer.response_template = qwen3_template
    clock, turns = StepClock(), [0]
    clock.on_step_end = _noting(clock.on_step_end, lambda: turns.append(len(sampled)))  # type: ignore[method-assign]
    trainer = Trainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=rows(place.job / "prompts.jsonl"),
        environment_factory=Dice,
        args=trl.GRPOConfig(
            **common(place),
            per_device_train_batch_size=SIZE.samples,
            gradient_accumulation_steps=SIZE.prompts,
            num_generations=SIZE.samples,
            max_completion_length=(CALLS + 1) * LONGEST,
            max_steps=place.steps + 1,
            beta=0.04,
            loss_type="grpo",
            temperature=TEMPERATURE,
            learning_rate=3e-6,
        ),
        callbacks=[clock],
    )
    trainer.train()
    lengths = [sum(sampled[a:b]) / (SIZE.prompts * SIZE.samples) for a, b in itertools.pairwise(turns)]
    return Measurement(clock.durations(), facts={"length": lengths})


def _needs(place: Place) -> Needs:
    """Not told: the tokens of a step are those that the policy writes."""
    return Needs()


def _noting(inner: Any, note: Any) -> Any:
    def ended(*arguments: Any, **more: Any) -> None:
        inner(*arguments, **more)
        note()

    return ended


JOBS = (
    Job(
        name="tools",
        about=f"GRPO with a tool, 6.8M, 4 prompts × {SIZE.samples} episodes of {CALLS} calls and an answer, β .04",
        peer="TRL 1.16.0",
        settings="environment_factory, generate of transformers, micro-batches of one group, loss_type grpo",
        environment="peers",
        shape=SHAPE,
        prepare=prepare,
        ours=ours,
        theirs=theirs,
        needs=_needs,
        faster=6.0,
        steps=2,
    ),
)
