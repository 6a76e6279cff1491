"""Table of commands: name, group, help, examples, and module of each.

A command is a file with its settings class, named after it (`ReportSettings`), and `main(settings) -> int`; or a
folder: `settings.py`, without heavy imports, `run.py` with the function of the command, which is also available in
Python, and, if it has output, `show.py` with a `main` that calls it and prints. The `run.py` of a training command also
has `prepare_<name>`; the description of its result is printed at the end.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of the command line."""

    name: str
    group: str
    help: str
    examples: tuple[str, ...] = ()
    """Arguments after `tutelage <name>` in everyday use, for the help."""
    computes: bool = False
    """Whether it runs a model, which requires torch and transformers."""
    parallel: bool = False
    """Whether several processes can share the work (`--processes`, torchrun)."""
    trains: bool = False
    """Whether it trains in a run directory, and can be planned and resumed."""
    result: str | None = None
    """Class that its function returns; "" if that is not a class of its own, None if the command is not available in
    Python."""
    place: str = ""
    """Module, if it is not `tutelage.commands.<name>`."""

    @property
    def module(self) -> str:
        """Dotted name of its file or folder."""
        return self.place or f"tutelage.commands.{self.name}"

    @property
    def class_name(self) -> str:
        """Name of its settings class."""
        return f"{self.name.capitalize()}Settings"

    @property
    def settings(self) -> type[Any]:
        """Its settings class; for a command with subcommands, their common base."""
        return getattr(self._declarations(), self.class_name)

    @property
    def subcommands(self) -> Mapping[str, type[Any]]:
        """Settings classes of its subcommands by name; empty if there are none."""
        return getattr(self._declarations(), "SUBCOMMANDS", {})

    @property
    def variants(self) -> Mapping[tuple[str, str], type[Any]]:
        """Alternative settings classes, by a flag and its value."""
        return getattr(self._declarations(), "VARIANTS", {})

    @property
    def names(self) -> Mapping[str, str]:
        """Names available in Python: its functions, settings and result, with their modules."""
        if self.result is None:
            return {}
        functions = (self.name, f"prepare_{self.name}") if self.trains else (self.name,)
        results = (self.result,) if self.result else ()
        modules = dict.fromkeys((*functions, *results), f"{self.module}.run")
        return modules | {self.class_name: f"{self.module}.settings"}

    def main(self, settings: Any) -> int:
        """Run the command and print its output. Returns the exit status."""
        main = getattr(self._part("show") or self._declarations(), "main", None)
        if main is not None:
            return main(settings)
        from tutelage.commands.terminal import remarks, train

        run = importlib.import_module(f"{self.module}.run")
        if self.trains:
            return train(getattr(run, f"prepare_{self.name}")(settings), quiet=settings.quiet)
        with remarks(quiet=settings.quiet):
            getattr(run, self.name)(settings)
        return 0

    def _declarations(self) -> ModuleType:
        """Import the module of the settings, which has no heavy imports."""
        return self._part("settings") or importlib.import_module(self.module)

    def _part(self, name: str) -> ModuleType | None:
        """Import a module of the command's folder; None if there is none."""
        if not hasattr(importlib.import_module(self.module), "__path__"):
            return None
        name = f"{self.module}.{name}"
        return importlib.import_module(name) if find_spec(name) else None


def find(name: str) -> Command:
    """Return the command with this name. Raises KeyError if there is none."""
    for command in COMMANDS:
        if command.name == name:
            return command
    raise KeyError(name)


def _training(name: str, help: str, *examples: str) -> Command:
    """A command that trains."""
    result = f"{name.capitalize()}Result"
    return Command(
        name=name, group="Train", help=help, examples=examples, computes=True, parallel=True, trains=True, result=result
    )


COMMANDS = (
    Command(
        name="demo",
        group="Get started",
        help="the whole loop on an embedded example or a real chat model, with a report",
        examples=("", "--world tools", "--world real --out runs/demo-real"),
        computes=True,
        place="tutelage.demo.demo",
    ),
    Command(
        name="docs",
        group="Get started",
        help="the pages of the documentation, here or in a browser",
        examples=("", "data", "rlhf_in_one_sitting --open"),
    ),
    Command(
        name="recipes",
        group="Get started",
        help="list the reinforcement-learning recipes and their pieces",
        examples=("", "--about grpo"),
    ),
    _training("pretrain", "a language model from plain text", "--data texts.txt --out runs/pretrain"),
    _training(
        "sft",
        "supervised fine-tuning on demonstrations",
        "--model path/to/model --data demonstrations.jsonl --lora.rank 16 --out runs/sft",
        "--config runs/sft/config.json --seed 1 --out runs/sft-1",
    ),
    _training(
        "reward",
        "a reward model from preferences, or from rated steps",
        "--model runs/sft/model --data preferences.jsonl --out runs/reward",
        "--model runs/sft/model --data runs/study --out runs/reward",
        "--steps --model runs/sft/model --data steps.jsonl --out runs/steps",
    ),
    _training(
        "improve",
        "a policy against a reward, by PPO or another recipe",
        "--model runs/sft/model --prompts prompts.jsonl --reward runs/reward/model --out runs/ppo",
        "--model runs/sft/model --prompts prompts.jsonl --reward rule:number --recipe grpo --out runs/grpo",
    ),
    _training(
        "dpo", "a policy from preferences directly", "--model runs/sft/model --data preferences.jsonl --out runs/dpo"
    ),
    _training(
        "rejection",
        "a policy on the best of its own completions",
        "--model runs/sft/model --prompts prompts.jsonl --reward runs/reward/model --out runs/rejection",
    ),
    _training(
        "distill",
        "a policy towards a teacher's distribution",
        "--model path/to/student --teacher path/to/teacher --prompts prompts.jsonl --out runs/distilled",
    ),
    Command(
        name="plan",
        group="Train",
        help="memory, time and cost of a training run, before it starts",
        examples=("improve --model path/to/model --prompts prompts.jsonl --reward runs/reward/model --out runs/ppo",),
        result="PlanResult",
    ),
    Command(
        name="export",
        group="Train",
        help="a run of improve for cluster trainers (verl, OpenRLHF), or a model for llama.cpp",
        examples=(
            "--to gguf --model runs/ppo/model --out policy.gguf --weights q8_0",
            "--to verl --model path/to/model --prompts prompts.jsonl --reward rule:math --recipe grpo --out exported",
        ),
        computes=True,
    ),
    Command(
        name="sample",
        group="Human feedback",
        help="completions of prompts, and pairs of them to compare",
        examples=("--model runs/sft/model --prompts prompts.jsonl --n 4 --pairs 2 --out runs/pairs",),
        computes=True,
        parallel=True,
        result="SampleResult",
    ),
    Command(
        name="collect",
        group="Human feedback",
        help="the web application in which people compare responses",
        examples=(
            "init runs/study --from-pairs pairs.jsonl",
            "serve runs/study",
            "export runs/study --out runs/preferences",
        ),
    ),
    Command(
        name="import",
        group="Human feedback",
        help="scores and annotations from Langfuse, LangSmith, Argilla, Label Studio, …",
        examples=(
            "traces.jsonl scores.jsonl --out runs/imported",
            "project.json --prompt question --responses answer_1 answer_2 --out runs/imported",
        ),
        place="tutelage.commands.annotation_import",
    ),
    Command(
        name="watch",
        group="Human feedback",
        help="run a command when a study reaches a target",
        examples=(
            'runs/study --items-done all --then "tutelage reward --config reward.toml --data runs/study"',
            'https://rate.example.org --votes 500 --no-once --then "sh train.sh"',
        ),
    ),
    Command(
        name="raters",
        group="Human feedback",
        help="reliability and agreement of raters",
        examples=("votes.csv", "votes.csv --diagram reliability.svg"),
        result="RatersResult",
    ),
    Command(
        name="judge",
        group="Human feedback",
        help="the prompt of a judge, aligned with people's votes",
        examples=("align runs/study --judge judge.toml --out runs/judge",),
    ),
    Command(
        name="iterate",
        group="Human feedback",
        help="the next round of a study, for the policy trained on the last one",
        examples=("runs/study --policy runs/ppo/model --prompts prompts.jsonl",),
        computes=True,
    ),
    Command(
        name="evaluate",
        group="Evaluate and inspect",
        help="win rates, scores, drift and text measures of a model",
        examples=("--model runs/ppo/model --against runs/sft/model --prompts held_out.jsonl --out runs/evaluation",),
        computes=True,
        parallel=True,
        result="EvaluateResult",
    ),
    Command(
        name="lab",
        group="Evaluate and inspect",
        help="experiments: effect of the KL, gradient noise, every recipe, over-optimisation",
        examples=("kl --out runs/lab",),
        computes=True,
        place="tutelage.demo.laboratory",
    ),
    Command(
        name="report",
        group="Evaluate and inspect",
        help="one self-contained HTML page about a run",
        examples=("runs/ppo",),
    ),
    Command(
        name="compare",
        group="Evaluate and inspect",
        help="runs side by side: curves, settings, figures, paired tests",
        examples=("runs/ppo runs/grpo", "runs/evaluation-a runs/evaluation-b --out comparison.html"),
        result="Comparison",
    ),
    Command(
        name="board",
        group="Evaluate and inspect",
        help="a live page over a folder of runs",
        examples=("runs", "runs/sweep --port 8080 --open"),
    ),
    Command(
        name="promote",
        group="Evaluate and inspect",
        help="promote a model on the evidence of a split test of served models",
        examples=("runs/ppo --outcomes responses.csv --split .1", "runs/ppo --undo"),
        result="Promotion",
    ),
    Command(
        name="push",
        group="Evaluate and inspect",
        help="upload the model of a run with its card to the hub",
        examples=("runs/ppo --repo me/my-model --list-only", "runs/ppo --repo me/my-model --public"),
    ),
    Command(
        name="doctor",
        group="Evaluate and inspect",
        help="check this machine, a run, a study or a server",
        examples=("", "runs/ppo", "study", "--endpoint http://localhost:8000/v1"),
    ),
    Command(
        name="chat",
        group="Evaluate and inspect",
        help="talk to a model, or to two side by side",
        examples=("--model runs/ppo/model", "--model runs/ppo/model --against runs/sft/model"),
        computes=True,
    ),
    Command(
        name="serve",
        group="Evaluate and inspect",
        help="a model over HTTP, in the formats of OpenAI and vLLM",
        examples=("--model runs/ppo/model", "--model runs/ppo/model --port 9000"),
        computes=True,
        result="",
    ),
)

ALIASES: dict[str, str] = {}
"""Old names of commands, which keep working for one release: {"old": "new"}. For settings see `config.aliases`."""
