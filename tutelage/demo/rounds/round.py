"""Round of the demonstration: the stages from sampling to evaluation, common to all worlds, and its folder.

A world is a function from a `RoundPlace` to a `DemoRound`: the settings of these stages, the stages before them, the
texts that they read, and the gold utility of the raters.
"""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tutelage.base import config
from tutelage.base.config import identity, to_mapping
from tutelage.base.config.bases import RunSettings
from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.commands.evaluate.run import evaluate
from tutelage.commands.evaluate.settings import EvaluateSettings
from tutelage.commands.improve.run import prepare_improve
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.commands.reward.run import prepare_reward
from tutelage.commands.reward.settings import RewardSettings
from tutelage.commands.runs import peak_memory_mb
from tutelage.commands.sample.run import sample
from tutelage.commands.sample.settings import SampleSettings
from tutelage.commands.terminal import complete
from tutelage.data.formats import load_comparisons, load_completions, load_prompts
from tutelage.data.worlds.gold import Utility
from tutelage.demo.rounds.simulated_study import JudgedQuestions, Judging, hold_study, remembered
from tutelage.people.simulated_raters import calibrated_tau, panel
from tutelage.train.run.loop import Training

log = logging.getLogger(__name__)

ROUND = "round.json"
WAITING = "waiting"
"""Status of a stage that has not started."""


@dataclass(frozen=True)
class Stage:
    """Stage of a round, written into the folder of its name. `settings` (dataclasses) determine it; `run` executes
    or resumes it. `kind` and `about` are those of the report, by default by the name and by the kind."""

    name: str
    title: str
    settings: tuple[object, ...]
    run: Callable[[], object]
    kind: str = ""
    about: str = ""


@dataclass(frozen=True)
class Story:
    """Description of the round in a report."""

    title: str
    about: str
    command: str
    reference: str = "SFT"
    policy: str = "policy"


def run_stages(folder: Path, story: Story, stages: Sequence[Stage]) -> dict[str, float]:
    """Run unfinished stages, each announced by a remark. Returns the seconds of each stage.

    A stage's fingerprint covers its settings and those of all stages before it. Raises TutelageError if a stage was
    started with other settings, so that its output is never discarded silently. A waiting stage takes the new
    settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {entry["name"]: entry for entry in _read(folder).get("stages", [])}
    fingerprints = _fingerprints(stages)
    entries = [_entry(stage, by_name.get(stage.name), fingerprints[stage.name], folder) for stage in stages]
    for stage, entry in zip(stages, entries, strict=True):
        if entry["status"] == "done":
            log.info(f"{stage.title}: done already")
            continue
        entry["status"] = "running"
        _write(folder, story, entries)
        log.info(stage.title)
        began = time.monotonic()
        try:
            with phase(stage.title):
                stage.run()
        except KeyboardInterrupt:
            raise
        except BaseException:
            entry["status"] = "failed"
            raise
        else:
            entry["status"] = "done"
        finally:
            entry["seconds"] = round(entry["seconds"] + time.monotonic() - began, 2)
            _write(folder, story, entries)
    return {entry["name"]: entry["seconds"] for entry in entries}


def _fingerprints(stages: Sequence[Stage]) -> dict[str, str]:
    """Hash of the settings of each stage and of all stages before it."""
    state, figures = "", {}
    for stage in stages:
        text = json.dumps([state, stage.name, *map(identity, stage.settings)], sort_keys=True, default=str)
        state = hashlib.sha256(text.encode()).hexdigest()[:16]
        figures[stage.name] = state
    return figures


def _entry(stage: Stage, earlier: dict[str, Any] | None, fingerprint: str, folder: Path) -> dict[str, Any]:
    if earlier is not None and earlier["status"] != WAITING and earlier["fingerprint"] != fingerprint:
        raise TutelageError(
            f"The folder {folder} holds a round whose stage {stage.name!r} was made with other settings. "
            "Choose another --out, or delete the folder."
        )
    if earlier is None and (folder / stage.name).exists():
        shutil.rmtree(folder / stage.name)  # left by a process that ended before it wrote the round
    return {
        "name": stage.name,
        "title": stage.title,
        **{key: text for key, text in (("kind", stage.kind), ("about", stage.about)) if text},
        "folder": stage.name,
        "fingerprint": fingerprint,
        "seconds": earlier["seconds"] if earlier else 0.0,
        "status": earlier["status"] if earlier else WAITING,
    }


def _read(folder: Path) -> dict[str, Any]:
    file = folder / ROUND
    if not file.is_file():
        return {}
    return json.loads(file.read_text(encoding="utf-8"))


def _write(folder: Path, story: Story, entries: Sequence[dict[str, Any]]) -> None:
    created = _read(folder).get("created") or datetime.now().strftime("%Y-%m-%d %H:%M")
    content = to_mapping(story) | {"created": created, "stages": list(entries)}
    write_atomically(folder / ROUND, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


AGREEMENT = 0.71  # of two fresh, attentive raters; people reach 0.63 to 0.77


@dataclass(frozen=True)
class RoundPlace:
    """Folder of a round, and the settings common to its stages: the seed, and the computation of its models."""

    folder: Path
    seed: int
    quiet: bool
    engine: config.EngineName = "auto"
    dtype: config.DtypeName = "float32"

    def run(self, stage: str) -> dict[str, Any]:
        """Settings common to all run directories of the round."""
        return {"out": self.folder / stage, "seed": self.seed, "resume": True, "quiet": self.quiet}

    def data(self, name: str) -> str:
        """File of the world's texts."""
        return str(self.folder / "data" / name)

    def model(self, stage: str) -> config.Model:
        """Model of a stage."""
        return self.model_at(str(self.folder / stage / "model"))

    def model_at(self, path: str) -> config.Model:
        """Model at a path, as an input or output of the round."""
        return config.Model(path=path, dtype=self.dtype, engine=self.engine)

    def flags(self) -> str:
        """Flags that reproduce this round: the seed, and non-default settings."""
        names = ("dtype", "engine")
        default = RoundPlace(self.folder, self.seed, self.quiet)
        changes = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(default, name)}
        return " ".join(f"--{name} {value}" for name, value in {"seed": self.seed, **changes}.items())


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Amounts of a world's texts, and their seed. An amount is 0 if the world has no such texts, and is then not
    part of the fingerprints of its stages."""

    seed: int
    corpus_tokens: int = 0
    """Words and punctuation marks of the pretraining text."""
    demonstrations: int = 0
    train_prompts: int = 0
    """Prompts for training, spread over all topics."""
    judged_prompts: int = 0
    """Prompts whose completions are judged, from the start of the list."""
    neutral_tokens: int = 0
    """Words and punctuation marks of unrelated text."""


T = TypeVar("T", bound=RunSettings)


def training(
    name: str, title: str, settings: T, prepare: Callable[[T], AbstractContextManager[Training[Any]]], **report: str
) -> Stage:
    """Stage that trains; `report` has its `kind` and `about`, if they differ from those by its name."""
    return Stage(name, title, (settings,), lambda: complete(prepare(settings), quiet=settings.quiet), **report)


def evaluation(place: RoundPlace, story: Story, **more: Any) -> EvaluateSettings:
    """Evaluation of the policy of a round on held-out prompts, by default against the model of its fine-tuning."""
    usual: dict[str, Any] = {
        "model": place.model("improve"),
        "against": str(place.folder / "sft" / "model"),
        "prompts": place.data("prompts_held_out.jsonl"),
        "out": place.folder / "evaluate",
        "names": (story.reference, story.policy),
        "seed": place.seed,
        "quiet": True,
    }
    return EvaluateSettings(**(usual | more))


def with_texts(stage: Stage, texts: Texts, write: Callable[[], object]) -> Stage:
    """Stage that first writes the texts of the world."""

    def run() -> object:
        write()
        return stage.run()

    return replace(stage, settings=(texts, *stage.settings), run=run)


class AnswerScale(Protocol):
    """Number and length of the judged completions of a round."""

    @property
    def answers(self) -> int: ...
    @property
    def pairs(self) -> int: ...
    @property
    def answer_tokens(self) -> int: ...


def answer_sampling(scale: AnswerScale) -> config.Sampling:
    """Sampling of all completions of a round."""
    return config.Sampling(temperature=0.7, max_new_tokens=scale.answer_tokens)


def answers_to_judge(place: RoundPlace, model: config.Model, scale: AnswerScale) -> SampleSettings:
    """Stage that samples the completions of `model` for the judged prompts."""
    return SampleSettings(
        model=model,
        prompts=place.data("prompts_to_judge.jsonl"),
        out=place.folder / "sample",
        n=scale.answers,
        pairs=scale.pairs,
        sampling=answer_sampling(scale),
        seed=place.seed,
        quiet=place.quiet,
    )


@dataclass(frozen=True, kw_only=True)
class DemoRound:
    """Stages of a round by their settings.

    `write` writes the texts that the stages read, according to `texts`, when the first stage starts. `before` are
    the stages that create the initial model, if the world does not provide one. Raters follow `gold`.
    """

    place: RoundPlace
    story: Story
    texts: Texts
    write: Callable[[], object]
    gold: Utility
    before: tuple[Stage, ...] = ()
    sampling: SampleSettings
    judging: Judging
    fitting: RewardSettings
    improving: ImproveSettings
    evaluation: EvaluateSettings

    def stages(self) -> list[Stage]:
        """All stages, in order."""
        stages = [
            *self.before,
            Stage("sample", "Sampling answers", (self.sampling,), self._sample),
            Stage("judge", "Raters judge pairs", (self.judging,), self._judge),
            training("reward", "Reward model", self.fitting, prepare_reward),
            training("improve", self.improving.recipe.upper(), self.improving, prepare_improve),
            Stage("evaluate", "Evaluation", (self.evaluation,), lambda: evaluate(self.evaluation)),
        ]
        return [with_texts(stages[0], self.texts, self.write), *stages[1:]]

    def results(self) -> dict[str, Any]:
        """Main results: those of the evaluation, and the accuracy of the reward model with its ceiling."""
        out = self.place.folder
        judged, fitted = (json.loads((out / name / "summary.json").read_text()) for name in ("judge", "reward"))
        return evaluated(out / "evaluate") | {
            "reward_model": {
                "accuracy": fitted["accuracy"],
                "accuracy_interval": fitted["accuracy_interval"],
                "ceiling": judged["ceiling"],
            }
        }

    def _sample(self) -> None:
        """Sample completions, under a name of the model that does not depend on the folder, because it determines
        which pairs are compared. The name is not among the stage's settings, for compatibility with older rounds."""
        name, folder = self.sampling.model.path, self.place.folder
        if Path(name).is_relative_to(folder):
            name = Path(name).relative_to(folder).as_posix()
        sample(replace(self.sampling, name=name))

    def _judge(self) -> None:
        """Let the simulated raters judge every pair, and write their preferences for training."""
        sample, place = self.sampling.out, self.place
        questions = JudgedQuestions(
            load_prompts(sample / "prompts.jsonl").records,
            load_completions(sample / "completions.jsonl").records,
            load_comparisons(sample / "comparisons.jsonl").records,
        )
        gold = remembered(self.gold)
        tau = calibrated_tau(list(questions.differences(gold).values()), AGREEMENT)
        raters = panel(place.seed, self.judging.raters, tau)
        hold_study(place.folder / "judge", questions, raters, gold, self.judging, quiet=place.quiet)


class Round(Protocol):
    """Stages of a world in one place, and the main results in the summaries of its finished stages."""

    @property
    def place(self) -> RoundPlace: ...
    @property
    def story(self) -> Story: ...
    def stages(self) -> list[Stage]: ...
    def results(self) -> dict[str, Any]: ...


def run_round(round_: Round) -> dict[str, Any]:
    """Run unfinished stages of a round, and write summary.json. Returns its content."""
    out = round_.place.folder
    story = replace(round_.story, command=f"{round_.story.command} {round_.place.flags()}")
    seconds = run_stages(out, story, round_.stages())
    earlier = json.loads((out / "summary.json").read_text()) if (out / "summary.json").is_file() else {}
    summary = round_.results() | {
        "seconds": seconds | {"total": sum(seconds.values())},
        "peak_rss_mb": max(peak_memory_mb(), earlier.get("peak_rss_mb", 0.0)),
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


FIGURES = {
    "gold_mean": "gold_mean", "gold_std": "gold_std", "score_mean": "score_mean", "kl": "kl_per_sequence",
    "length/mean": "length", "ended": "ended", "turns/mean": "turns", "text_perplexity": "text_perplexity",
}  # fmt: skip
"""Figures of an evaluation with their names in the summary of a round."""


def evaluated(folder: Path) -> dict[str, Any]:
    """Results of an evaluation in a folder: of the model before reinforcement learning (`sft`, or the chat model), and
    of the resulting policy."""
    evaluation = json.loads((folder / "summary.json").read_text())
    won = {key: evaluation["win_rate"]["gold"][key] for key in ("win_rate", "win_rate_ci")}
    sides = {"sft": (evaluation["against"], {}), "policy": (evaluation["model"], won)}
    return {
        name: {FIGURES[key]: value for key, value in figures.items() if key in FIGURES} | more
        for name, (figures, more) in sides.items()
    }
