"""Settings that several commands have at their top level, as classes that they inherit."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tutelage.base.config.bounds import a_seed, at_least
from tutelage.base.config.sections import POLICY_EPS, Checkpoints, EngineName, Lora, Optimiser, Sampling
from tutelage.base.errors import TutelageError

SyncName = Literal["lora", "disk", "nccl"]
"""How servers get new weights: as an adapter, as a whole model by a folder, or from GPU to GPU."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Where a run is written, and how it is kept."""

    out: Path
    """Folder of the run: settings, metrics, samples, checkpoints, the final model."""
    seed: int = 0
    """Seed of every random choice; the same seed on the same machine gives the same run."""
    resume: bool = False
    """Go on with an unfinished run in this folder from its latest checkpoint."""
    quiet: bool = False
    """Show no progress and no tables."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    trackers: tuple[str, ...] = ()
    """Where else the metrics go: wandb, tensorboard, trackio, mlflow, or module:NAME of your own."""
    profile: bool = False
    """Record where the time of three steps goes: profile.txt, a table, and trace.json, for Perfetto."""

    def __post_init__(self) -> None:
        a_seed(self)


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """How much a training run holds in memory at once. The result is the same."""

    tokens_at_once: int | None = None
    """Padded tokens of one forward pass; if omitted, as many as memory allows. Smaller needs less memory and gives the
    same result. If it still runs out of memory, it is halved."""

    activation_checkpointing: bool = False
    """Keep one hidden state per layer and token, and compute each layer again in the backward pass: much less memory,
    about a third more time. Computed by the plain engine."""

    def check_memory(self) -> None:
        """Raise TutelageError for a pass without tokens."""
        if self.tokens_at_once is not None:
            at_least(self, tokens_at_once=1)


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """How models compute."""

    engine: EngineName = "auto"
    """How models compute: plain, by transformers' modules; cpu, by kernels compiled for this CPU; auto: cpu on a CPU,
    else plain."""


@dataclass(frozen=True, kw_only=True)
class ShardSettings:
    """Where the weights of a run over several processes lie."""

    shard: Literal["none", "full", "hybrid"] = "none"
    """none: every process holds all weights, gradients and moments; full: its share of them, and layers are gathered
    from all while they compute (FSDP); hybrid: the processes of a machine share them, and every machine has a copy.
    Computed by the plain engine."""


@dataclass(frozen=True, kw_only=True)
class BatchSettings(RunSettings, MemorySettings, ShardSettings):
    """Steps of examples: how many make one, and how long they are."""

    batch_size: int = 16
    """Examples of one optimiser step."""
    max_length: int = 1024
    """Tokens of prompt and response together; longer ones are cut and counted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, batch_size=1, max_length=2)
        self.check_memory()


@dataclass(frozen=True, kw_only=True)
class AnswerServers:
    """Servers that write answers with a model that stays as it is."""

    rollouts: str = ""
    """Addresses of vLLM or SGLang servers that write the answers, joined by commas, such as http://localhost:8000; when
    empty they are written in this process. A key, if the servers want one, is read from TUTELAGE_ENDPOINT_KEY."""


@dataclass(frozen=True, kw_only=True)
class RolloutServers(AnswerServers):
    """Servers that write answers with a policy that is being trained."""

    sync: Literal["auto", SyncName] = "auto"
    """How the servers of --rollouts get new weights: lora, as an adapter; disk, as a whole model; nccl, as a whole
    model from GPU to GPU; auto takes lora where --lora.rank is set, else disk."""
    sync_folder: str = ""
    """Folder in which new weights wait for the servers, which see it at the same path; one in --out when empty."""

    @property
    def sync_by(self) -> SyncName:
        """How new weights get to the servers."""
        if self.sync != "auto":
            return self.sync
        return "lora" if self._rank else "disk"

    @property
    def _rank(self) -> int:
        lora = getattr(self, "lora", Lora())
        return int(lora.rank)

    def check_servers(self) -> None:
        """Raise TutelageError for settings that contradict each other or do nothing."""
        if not self.rollouts and (self.sync != "auto" or self.sync_folder):
            raise TutelageError(
                "--sync and --sync-folder say how weights get to the servers of --rollouts, and there are none: leave "
                "them out."
            )
        if self.sync == "lora" and not self._rank:
            raise TutelageError(
                "--sync lora hands an adapter over, but --lora.rank is 0, which trains every weight. Use --sync disk."
            )
        if self.sync == "nccl" and self._rank:
            raise TutelageError(
                "--sync nccl sends every weight, and --lora.rank trains an adapter: use --sync lora, which sends that "
                "alone."
            )
        if self.sync == "nccl" and self.sync_folder:
            raise TutelageError("--sync nccl writes no folder: leave --sync-folder out.")


@dataclass(frozen=True, kw_only=True)
class TrustSettings:
    """A study that says how far a reward can be trusted."""

    trust: str = ""
    """A study (its database file, its folder, or a postgresql:// URL) whose votes the reward is held against before it
    trains: it is refused where it agrees less with the raters than they do with each other."""
    trust_study: str = ""
    """The study's name, where a database holds several."""
    trust_anyway: bool = False
    """Train on a reward that --trust would refuse."""

    def check_trust(self) -> None:
        """Raise TutelageError for settings that do nothing."""
        if not self.trust and (self.trust_study or self.trust_anyway):
            raise TutelageError("--trust-study and --trust-anyway go with --trust, which names a study.")


@dataclass(frozen=True, kw_only=True)
class RoundSettings(RolloutServers, TrustSettings):
    """Rounds of answering, scoring and learning from that."""

    prompts: str = ""
    """Prompts to answer: a file or hub data set; any format of demonstrations or preferences serves too."""
    reward: tuple[str, ...] = ()
    """What scores the answers: reward-model folders or module:function(prompts, answers) -> scores, each with an
    optional =weight; several add up."""
    rounds: int = 1
    """Rounds; each begins with answers of the policy as it is then."""
    prompts_per_round: int = 0
    """Prompts that are answered in a round; 0 for all."""
    samples: int = 8
    """Answers to each of them."""
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        at_least(self, rounds=1, prompts_per_round=0, samples=2)
        self.check_servers()
        self.check_trust()
        if self.sampling.temperature == 0:
            raise TutelageError(
                "At temperature 0 all answers to a prompt are the same, and none is better: use 0.7 or 1."
            )


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(RolloutServers, RunSettings, MemorySettings, ShardSettings):
    """Steps of a recipe: a rollout, then an update."""

    steps: int = 100
    """Rollouts, each followed by the recipe's update."""
    batch_size: int = 64
    """Prompts of one rollout; the recipe says how many answers each gets."""
    lora: Lora = field(default_factory=Lora)
    optimiser: Optimiser = field(default_factory=lambda: Optimiser(eps=POLICY_EPS))
    sample_every: int = 10
    """Steps between the answers that are written to samples.jsonl."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, steps=1, batch_size=1, sample_every=1)
        self.check_memory()
        self.check_servers()
