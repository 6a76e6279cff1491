"""Settings of an evaluation."""

from dataclasses import dataclass, field
from pathlib import Path

from tutelage import config
from tutelage.config.limits import a_seed, at_least
from tutelage.config.servers import AnswerServers


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(AnswerServers):
    """Measure a model's answers to prompts: scores, win rates against another model with prompt-clustered intervals,
    divergence, perplexity, ROUGE, variety and length. Writes summary.json and answers.jsonl."""

    model: config.Model
    prompts: str
    """Prompts: a file or hub data set; demonstrations bring references for ROUGE."""
    out: Path
    """Folder to write to."""
    against: str = ""
    """A second model, answering the same prompts; win rates and the divergence are against it."""
    reward: tuple[str, ...] = ()
    """What scores the answers: reward-model folders, module:function, rule:name or judge:file, each with an optional
    name= before it."""
    base: str = ""
    """A model under which the perplexity of the answers is measured."""
    text: str = field(default="", metadata=config.LATER)
    """Texts or demonstrations that have nothing to do with the prompts; each model's perplexity on them shows what
    training has done to its language elsewhere."""
    names: tuple[str, str] = ("against", "model")
    """What to call the second model and the first in the tables."""
    references: str = ""
    """Demonstrations of the same prompts, with which the answers are compared by ROUGE."""
    n: int = 1
    """Answers to each prompt."""
    limit: int = 0
    """Prompts to use at most; 0 for all."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    seed: int = 0
    """Seed of the sampling."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, n=1, limit=0)
