"""Settings of sampling."""

from dataclasses import dataclass, field
from pathlib import Path

from tutelage.base import config
from tutelage.base.config.bases import COLOCATED, AnswerServers, EpisodeSettings
from tutelage.base.config.bounds import a_seed, at_least
from tutelage.base.config.sections import SearchSettings
from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class SampleSettings(AnswerServers, EpisodeSettings):
    """Sample completions of prompts. Writes prompts.jsonl and completions.jsonl and, with --pairs, comparisons.jsonl:
    questions for raters. With --tools or --environment completions are episodes, whose turns are their steps. With a
    reward, only the best of many completions are kept (--best-of), or the model revises them by its own critique
    (--test-time.rounds: test-time preference optimisation); demonstrations.jsonl then contains those that ended, as
    training data for sft or distill."""

    model: config.Model
    prompts: str
    """Prompts: a file or hub data set; any format of demonstrations or preferences works too."""
    out: Path
    """Output folder."""
    n: int = 2
    """Completions per prompt."""
    pairs: int = 0
    """Pairs of different completions per prompt, to compare, at most n (n − 1) / 2; 0 for none."""
    reward: tuple[str, ...] = ()
    """Rewards for selecting completions: reward-model folders, module:function, rule:name or judge:file, each with an
    optional =weight."""
    best_of: int = 0
    """Sample this many completions per prompt and keep the best --n; 0 keeps all."""
    test_time: SearchSettings = field(default_factory=SearchSettings)
    endpoint: str = ""
    """Address of an OpenAI-compatible endpoint, such as http://localhost:8000/v1, that serves --model; if it needs a
    key, it is read from TUTELAGE_ENDPOINT_KEY."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    name: str = ""
    """Name of the model in the files and in a study; by default that of --model. The ids of completions, and thus the
    choice of pairs, depend on it, the seed and the texts: set it if the folder of a model has moved."""
    seed: int = 0
    """Random seed of sampling."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, n=1, pairs=0, best_of=0)
        self.check_episodes()
        chosen = self.best_of or self.test_time.rounds
        if self.endpoint and self.rollouts:
            raise TutelageError("--endpoint provides chat completions and --rollouts token ids: give one of the two.")
        if self.rollouts == COLOCATED:
            raise TutelageError(
                "--rollouts vllm receives the weights of a model in this process, and sample loads none with "
                "--rollouts: omit it, or give addresses of servers."
            )
        if self.pairs and self.n < 2:
            raise TutelageError("--pairs needs two completions per prompt: set --n 2 or more.")
        if max(self.n, self.best_of, self.test_time.rounds) > 1 and self.sampling.temperature == 0:
            raise TutelageError(
                "At temperature 0 all completions of a prompt are the same: set --n 1, or a temperature."
            )
        if self.best_of and self.best_of < self.n:
            raise TutelageError(f"--best-of {self.best_of} samples fewer completions than the --n {self.n} to keep.")
        if self.best_of and self.test_time.rounds:
            raise TutelageError(
                "--best-of selects among plain samples and --test-time.rounds among revisions: give one of the two. "
                "The number of initial samples of the latter is --test-time.width."
            )
        if chosen and not self.reward:
            raise TutelageError("--best-of and --test-time.rounds select by a score: name it with --reward.")
        if self.reward and not chosen:
            raise TutelageError("--reward needs completions to select from: give --best-of or --test-time.rounds.")
        if self.has_episodes and (chosen or self.endpoint or self.rollouts):
            raise TutelageError(
                "Episodes are played with a model in this process, and none of them is selected: omit --endpoint, "
                "--rollouts, --best-of and --test-time.rounds, or --tools and --environment."
            )
        if self.test_time != SearchSettings() and not self.test_time.rounds:
            raise TutelageError(
                "--test-time.width and --test-time.words have no effect without --test-time.rounds; 2 are usual."
            )
