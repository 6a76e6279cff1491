"""The settings of the commands of `tutelage collect` that let programs answer: simulated raters and model judges."""

from dataclasses import dataclass
from pathlib import Path

from tutelage.base import config
from tutelage.base.config.limits import a_seed
from tutelage.base.errors import TutelageError
from tutelage.commands.collecting.settings import CollectSettings


@dataclass(frozen=True, kw_only=True)
class Simulate(CollectSettings):
    """Let simulated raters answer over HTTP, as browsers would."""

    url: str = ""
    """Server to use; without one it is started for the time."""
    raters: int = 6
    """How many raters; of every dozen or less, one is careless, one adversarial, the others ordinary."""
    answers: int | None = None
    """Answers of each rater at most."""
    think: float = 0.0
    """Mean seconds that a rater takes to answer (drawn anew each time); 0 answers at once, as no person does."""
    gold: str = "tutelage.data.worlds:gold"
    """What the raters value, as module:function of prompts and completions."""
    seed: int = 0
    """Seed of the raters."""

    def __post_init__(self) -> None:
        a_seed(self)


@dataclass(frozen=True, kw_only=True)
class Judge(CollectSettings):
    """Let a model judge everything as one more rater, counted apart from people: a language model behind an
    OpenAI-compatible endpoint, asked about both orders of each pair, or a reward model."""

    rater: str = ""
    """Name of the rater; that of the model when empty. One name is one judge: another model or prompt needs another."""
    endpoint: str = ""
    """Address of the endpoint that serves --model, such as http://localhost:8000/v1; its key, if it wants one, is read
    from TUTELAGE_ENDPOINT_KEY."""
    model: str = ""
    """The endpoint's model."""
    temperature: float = 0.0
    """Of the endpoint's model."""
    template: Path | None = None
    """File with the prompt, if not the built-in one: {question}, {guidelines}, {conversation}, {first} and {second} are
    filled in, and the reply has to end with [[A]], [[B]] or [[C]]."""
    reward: str = ""
    """Reward model (folder) or module:function of prompts and answers, instead of an endpoint."""
    engine: config.EngineName = "auto"
    """How models compute: plain, by transformers' modules; cpu, by kernels compiled for this processor; auto: cpu on a
    processor, else plain."""
    tie: float = 0.0
    """Scores no further apart than this are equal."""
    step: float = 1.0
    """Scores further apart by this are one step of strength more."""
    limit: int | None = None
    """Questions at most; the next call goes on."""

    def __post_init__(self) -> None:
        if bool(self.endpoint) == bool(self.reward):
            raise TutelageError("A judge is either a model behind --endpoint or a --reward.")
        if self.endpoint and not self.model:
            raise TutelageError("--endpoint needs --model, the name by which it serves the judge.")
        if self.step <= 0 or self.tie < 0 or self.temperature < 0:
            raise TutelageError("--step has to be above 0, --tie and --temperature at least 0.")
