"""Settings of an evaluation."""

from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

from tutelage.base import config
from tutelage.base.config.bases import AnswerServers
from tutelage.base.config.bounds import a_seed, at_least
from tutelage.base.errors import TutelageError

ABOUT_PROMPTS = ("rollouts", "reward", "base", "text", "references", "n", "sampling")
"""Settings that are about answers to prompts."""
ABOUT_TASKS = ("task_folder", "task_shots", "task_chat")
"""Settings that are about tasks."""


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(AnswerServers):
    """Measure a model's answers to prompts: scores, win rates against another model with prompt-clustered intervals,
    divergence, perplexity, ROUGE, variety and length; or on the tasks of lm-evaluation-harness. Writes summary.json,
    answers.jsonl and tasks.jsonl."""

    model: config.Model
    prompts: str = ""
    """Prompts: a file or hub data set; demonstrations bring references for ROUGE. Empty runs the tasks alone."""
    tasks: tuple[str, ...] = ()
    """Tasks of EleutherAI's lm-evaluation-harness, such as arc_easy or gsm8k (extra lm-eval). Their data come from the
    hub."""
    task_folder: str = ""
    """A folder with tasks of your own, as the harness reads them from YAML files."""
    task_shots: int | None = None
    """Examples before each question of a task; if omitted, as many as the task says."""
    task_chat: bool = False
    """Put the questions of tasks into the chat template."""
    out: Path
    """Folder to write to."""
    against: str = ""
    """A second model, answering the same prompts; win rates and the divergence are against it."""
    reward: tuple[str, ...] = ()
    """What scores the answers: reward-model folders, module:function, rule:name or judge:file, each with an optional
    name= before it."""
    base: str = ""
    """A model under which the perplexity of the answers is measured."""
    text: str = ""
    """Texts or demonstrations that have nothing to do with the prompts; each model's perplexity on them shows what
    training has done to its language elsewhere."""
    names: tuple[str, str] = ("against", "model")
    """What to call the second model and the first in the tables."""
    references: str = ""
    """Demonstrations of the same prompts, with which the answers are compared by ROUGE."""
    n: int = 1
    """Answers to each prompt."""
    limit: int = 0
    """Prompts, and documents of each task, to use at most; 0 for all."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    seed: int = 0
    """Seed of the sampling."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, n=1, limit=0)
        if self.task_shots is not None:
            at_least(self, task_shots=0)
        if not self.prompts and not self.tasks:
            raise TutelageError("There is nothing to evaluate on: give --prompts, --tasks, or both.")
        for given, names, flag in (
            (self.prompts, ABOUT_PROMPTS, "prompts"),
            (self.tasks, ABOUT_TASKS, "tasks"),
        ):
            for name in () if given else self._changed(names):
                raise TutelageError(
                    f"--{name.replace('_', '-')} has no effect without --{flag}: give --{flag} too, or leave it out."
                )

    def _changed(self, names: tuple[str, ...]) -> list[str]:
        """The settings that differ from their defaults."""
        defaults = {
            one.name: one.default_factory() if one.default_factory is not MISSING else one.default
            for one in fields(self)
        }
        return [name for name in names if getattr(self, name) != defaults[name]]
