"""The table of verbs: what each is called, what it is for, and how it is used."""

from typing import NamedTuple


class Verb(NamedTuple):
    """One word of the command line."""

    name: str
    group: str
    help: str
    examples: tuple[str, ...] = ()
    """What follows `tutelage <name>` in commands of everyday use, for help."""
    computes: bool = False
    """Whether the verb computes with a model, for which torch and transformers are imported."""
    parallel: bool = False
    """Whether several processes can share the work (`--processes`, torchrun)."""
    place: str = ""
    """Its module, where that is not `tutelage.commands.<name>`."""

    @property
    def module(self) -> str:
        """The dotted name of its module."""
        return self.place or f"tutelage.commands.{self.name}"


VERBS = (
    Verb(
        "demo",
        "begin here",
        "the whole loop on an embedded example or a real chat model, with a report",
        ("", "--quick", "--world real --out runs/demo-real"),
        computes=True,
        place="tutelage.demo.demo",
    ),
    Verb(
        "recipes",
        "begin here",
        "the reinforcement-learning recipes and the pieces they are made of",
        ("", "--about grpo"),
    ),
    Verb(
        "pretrain",
        "train",
        "a language model from plain text",
        ("--data texts.txt --out runs/pretrain",),
        computes=True,
        parallel=True,
    ),
    Verb(
        "sft",
        "train",
        "supervised fine-tuning on demonstrations",
        (
            "--model path/to/model --data demonstrations.jsonl --lora.rank 16 --out runs/sft",
            "--config runs/sft/config.json --seed 1 --out runs/sft-1",
        ),
        computes=True,
        parallel=True,
    ),
    Verb(
        "reward",
        "train",
        "a reward model from preferences",
        (
            "--model runs/sft/model --data preferences.jsonl --out runs/reward",
            "--model runs/sft/model --data runs/study --out runs/reward",
        ),
        computes=True,
        parallel=True,
    ),
    Verb(
        "improve",
        "train",
        "a policy against a reward, by PPO or another recipe",
        (
            "--model runs/sft/model --prompts prompts.jsonl --reward runs/reward/model --out runs/ppo",
            "--model runs/sft/model --prompts prompts.jsonl --reward rule:number --recipe grpo --out runs/grpo",
        ),
        computes=True,
        parallel=True,
    ),
    Verb(
        "dpo",
        "train",
        "a policy from preferences directly",
        ("--model runs/sft/model --data preferences.jsonl --out runs/dpo",),
        computes=True,
        parallel=True,
    ),
    Verb(
        "rejection",
        "train",
        "a policy on the best of its own answers",
        ("--model runs/sft/model --prompts prompts.jsonl --reward runs/reward/model --out runs/rejection",),
        computes=True,
        parallel=True,
    ),
    Verb(
        "distill",
        "train",
        "a policy on what a teacher would have written",
        ("--model path/to/student --teacher path/to/teacher --prompts prompts.jsonl --out runs/distilled",),
        computes=True,
        parallel=True,
    ),
    Verb(
        "plan",
        "train",
        "memory, time and cost of a run of any verb that trains, beforehand",
        ("improve --model path/to/model --prompts prompts.jsonl --reward runs/reward/model --out runs/ppo",),
    ),
    Verb(
        "export",
        "train",
        "a run of improve for trainers of clusters (verl, OpenRLHF), or a model for llama.cpp",
        (
            "--to gguf --model runs/ppo/model --out policy.gguf --weights q8_0",
            "--to verl --model path/to/model --prompts prompts.jsonl --reward rule:math --recipe grpo --out exported",
        ),
        computes=True,
    ),
    Verb(
        "sample",
        "people",
        "answers to prompts, and pairs of them to compare",
        ("--model runs/sft/model --prompts prompts.jsonl --n 4 --pairs 2 --out runs/pairs",),
        computes=True,
        parallel=True,
    ),
    Verb(
        "collect",
        "people",
        "the web application in which people compare answers",
        (
            "init runs/study --from-pairs pairs.jsonl",
            "serve runs/study",
            "export runs/study --out runs/preferences",
        ),
    ),
    Verb(
        "watch",
        "people",
        "a command as soon as a study is far enough",
        (
            'runs/study --items-done all --then "tutelage reward --config reward.toml --data runs/study"',
            'https://rate.example.org --votes 500 --no-once --then "sh train.sh"',
        ),
    ),
    Verb(
        "raters",
        "people",
        "how reliable the raters are, and how well they agree",
        ("votes.csv", "votes.csv --diagram reliability.svg"),
    ),
    Verb(
        "iterate",
        "people",
        "the next round of a study, about the policy that came of the last one",
        ("runs/study --policy runs/ppo/model --prompts prompts.jsonl",),
        computes=True,
    ),
    Verb(
        "evaluate",
        "look",
        "win rates, scores, drift and text measures of a model",
        ("--model runs/ppo/model --against runs/sft/model --prompts held_out.jsonl --out runs/evaluation",),
        computes=True,
        parallel=True,
    ),
    Verb(
        "lab",
        "look",
        "experiments: what the KL does, how noisy gradients are, every recipe, over-optimisation",
        ("kl --out runs/lab",),
        computes=True,
        place="tutelage.demo.laboratory",
    ),
    Verb("report", "look", "one self-contained HTML page about a run", ("runs/ppo",)),
    Verb(
        "push",
        "look",
        "the model of a run with its card, on the hub",
        ("runs/ppo --repo me/my-model --list-only", "runs/ppo --repo me/my-model --public"),
    ),
    Verb(
        "doctor",
        "look",
        "what this machine can do, or what is wrong in a run, a study or a server",
        ("", "runs/ppo", "study", "--endpoint http://localhost:8000/v1"),
    ),
    Verb(
        "chat",
        "look",
        "talk to a model, or to two side by side",
        ("--model runs/ppo/model", "--model runs/ppo/model --against runs/sft/model"),
        computes=True,
    ),
    Verb(
        "serve",
        "look",
        "a model behind HTTP, in the formats of OpenAI and vLLM",
        ("--model runs/ppo/model", "--model runs/ppo/model --port 9000"),
        computes=True,
    ),
)

ALIASES: dict[str, str] = {}
"""Old names of verbs, which go on working for one release: {"old": "new"}. For settings see `config.aliases`."""
