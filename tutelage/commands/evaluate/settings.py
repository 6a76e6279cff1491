"""Settings of an evaluation."""

from dataclasses import dataclass, field
from pathlib import Path

from tutelage.base import config
from tutelage.base.config.bases import AnswerServers, EpisodeSettings
from tutelage.base.config.bounds import a_seed, at_least, changed_flags
from tutelage.base.errors import TutelageError

ABOUT_PROMPTS = ("rollouts", "reward", "base", "text", "references", "n", "sampling", "environment", "tools", "agent")
"""Settings that apply to prompts."""
ABOUT_TASKS = ("task_folder", "task_shots", "task_chat")
"""Settings that apply to tasks."""


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(AnswerServers, EpisodeSettings):
    """Measure a model's completions: scores, win rates against another model with prompt-clustered intervals,
    divergence, perplexity, ROUGE, diversity and length; or its results on tasks of lm-evaluation-harness. Writes
    summary.json, answers.jsonl and tasks.jsonl."""

    model: config.Model
    prompts: str = ""
    """Prompts: a file or hub data set; demonstrations include references for ROUGE. If omitted, only the tasks are
    run."""
    tasks: tuple[str, ...] = ()
    """Tasks of EleutherAI's lm-evaluation-harness, such as arc_easy or gsm8k (extra lm-eval). Their data are downloaded
    from the hub."""
    task_folder: str = ""
    """Folder of custom tasks, as YAML files of the harness."""
    task_shots: int | None = None
    """Few-shot examples per question; by default those of the task."""
    task_chat: bool = False
    """Apply the chat template to the questions of tasks."""
    out: Path
    """Output folder."""
    against: str = ""
    """A second model for the same prompts, for win rates and the divergence."""
    reward: tuple[str, ...] = ()
    """Rewards of the completions: reward-model folders, module:function, rule:name or judge:file, each with an optional
    name= before it."""
    reward_bench: str = field(default="", metadata=config.LATER)
    """Benchmark of rewards in the format of RewardBench 2: a file or hub data set. It measures the reward --model, the
    folder of a reward model or another reward such as judge:FILE, and those of --reward."""
    base: str = ""
    """Model under which to measure the perplexity of the completions."""
    text: str = ""
    """Texts or demonstrations unrelated to the prompts; each model's perplexity on them shows how training changed its
    language elsewhere."""
    names: tuple[str, str] = ("against", "model")
    """Names of the second model and the first in the tables."""
    references: str = ""
    """Demonstrations of the same prompts, as references for ROUGE."""
    n: int = 1
    """Completions per prompt."""
    limit: int = 0
    """Maximum number of prompts, and of documents per task; 0 for all."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    seed: int = 0
    """Random seed of sampling."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, n=1, limit=0)
        self.check_episodes()
        if self.task_shots is not None:
            at_least(self, task_shots=0)
        if self.reward_bench:
            self._check_benchmark()
            return
        if not self.prompts and not self.tasks:
            raise TutelageError("evaluate needs --prompts, --tasks, or both; or --reward-bench.")
        for is_set, names, flag in ((self.prompts, ABOUT_PROMPTS, "prompts"), (self.tasks, ABOUT_TASKS, "tasks")):
            for changed in () if is_set else changed_flags(self, names):
                raise TutelageError(f"{changed} has no effect without --{flag}: give --{flag} too, or omit it.")

    def _check_benchmark(self) -> None:
        """Refuse settings that are not about a benchmark of rewards."""
        others = ("prompts", "tasks", "against", "text", *ABOUT_TASKS, *ABOUT_PROMPTS)
        for flag in changed_flags(self, [each for each in others if each != "reward"]):
            raise TutelageError(
                f"{flag} is not about a benchmark of rewards: omit it, or evaluate without --reward-bench."
            )
