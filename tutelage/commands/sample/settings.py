"""Settings of sampling answers."""

from dataclasses import dataclass, field
from pathlib import Path

from tutelage.base import config
from tutelage.base.config.bases import AnswerServers
from tutelage.base.config.bounds import a_seed, at_least
from tutelage.base.errors import TutelageError
from tutelage.rollout.inference.search_settings import SearchSettings


@dataclass(frozen=True, kw_only=True)
class SampleSettings(AnswerServers):
    """Sample answers to prompts. Writes prompts.jsonl and completions.jsonl and, with --pairs, comparisons.jsonl: the
    questions that people can then be asked. With a reward, only the best answers of many are kept (--best-of), or the
    model revises them by its own critique (--test-time.rounds: test-time preference optimisation); demonstrations.jsonl
    then holds those that ended, for sft or distill to learn from."""

    model: config.Model
    prompts: str
    """Prompts: a file or hub data set; any format of demonstrations or preferences serves too."""
    out: Path
    """Folder to write to."""
    n: int = 2
    """Answers to each prompt."""
    pairs: int = 0
    """Pairs of different answers to compare per prompt; 0 for none."""
    reward: tuple[str, ...] = ()
    """What scores the answers, where some are chosen: reward-model folders, module:function, rule:name or
    judge:file, each with an optional =weight."""
    best_of: int = 0
    """Sample so many answers to each prompt and keep the --n that score best; 0 keeps all that are sampled."""
    test_time: SearchSettings = field(default_factory=SearchSettings)
    endpoint: str = ""
    """Address of an OpenAI-compatible endpoint, such as http://localhost:8000/v1, that serves --model; its key, if it
    wants one, is read from TUTELAGE_ENDPOINT_KEY."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    name: str = ""
    """Name of the model in the files and in a study; that of --model unless given. The ids of answers, and with them
    which pairs are asked, follow from it, the seed and the texts: give one to a model whose folder has moved."""
    seed: int = 0
    """Seed of the sampling."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, n=1, pairs=0, best_of=0)
        chosen = self.best_of or self.test_time.rounds
        if self.endpoint and self.rollouts:
            raise TutelageError(
                "--endpoint is asked for chat completions and --rollouts for token ids: give one of the two."
            )
        if self.pairs and self.n < 2:
            raise TutelageError("--pairs needs two answers to each prompt: set --n 2 or more.")
        if max(self.n, self.best_of, self.test_time.rounds) > 1 and self.sampling.temperature == 0:
            raise TutelageError(
                "At temperature 0 all answers to a prompt are the same: set --n 1, or a temperature."
            )
        if self.best_of and self.best_of < self.n:
            raise TutelageError(
                f"--best-of {self.best_of} samples fewer answers than the --n {self.n} to be kept."
            )
        if self.best_of and self.test_time.rounds:
            raise TutelageError(
                "--best-of chooses among plain samples and --test-time.rounds among revisions: give one of the two. "
                "How many answers the latter samples at first is --test-time.width."
            )
        if chosen and not self.reward:
            raise TutelageError("--best-of and --test-time.rounds choose by a score: name it with --reward.")
        if self.reward and not chosen:
            raise TutelageError(
                "--reward scores answers to choose among, but nothing is chosen: give --best-of or --test-time.rounds."
            )
        if self.test_time != SearchSettings() and not self.test_time.rounds:
            raise TutelageError(
                "--test-time.width and --test-time.words do nothing without --test-time.rounds; 2 are usual."
            )
