"""Base classes for top-level settings that several commands share."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from tutelage.base.config.bounds import a_seed, a_share, above_zero, at_least, changed_flags
from tutelage.base.config.mapping import LATER
from tutelage.base.config.sections import POLICY_EPS, Checkpoints, EngineName, Lora, Model, Optimiser, Rates, Sampling
from tutelage.base.errors import TutelageError

COLOCATED = "vllm"
"""Value of --rollouts for vLLM in this process."""
VERIFIERS, OPENENV = "verifiers", "openenv"
"""Beginnings of values of --environment, before a colon, that name environments of these packages."""
INCIDENTAL = (
    *("out", "resume", "quiet", "trackers", "checkpoints", "profile"),
    *("engine", "model.engine", "rollouts", "sync", "sync_folder"),
    *("activation_checkpointing", "shard", "tokens_at_once", "agent_processes"),
)
"""Settings that do not affect the computation; they may change on resumption."""
SyncName = Literal["lora", "disk", "nccl"]
"""How servers receive new weights: as an adapter, as a whole model in a folder, or from GPU to GPU."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Output folder of a training run, its seed, records, use of memory and sharding."""

    shard: Literal["none", "full", "hybrid"] = "none"
    """none: every process holds all weights, gradients and moments; full: each holds its shard, and layers are gathered
    from all while they compute (FSDP); hybrid: sharded among the processes of a machine and replicated across machines.
    Uses the plain engine."""
    tokens_at_once: int | None = None
    """Micro-batch: padded tokens per forward pass; if omitted, as many as memory allows. Smaller values need less
    memory and give the same result. If it still runs out of memory, it is halved."""
    activation_checkpointing: bool = False
    """Keep one hidden state per layer and token, and recompute each layer in the backward pass: much less memory, about
    a third more time. On a CPU it uses the plain engine."""
    out: Path
    """Folder of the run: settings, metrics, samples, checkpoints and the final model."""
    seed: int = 0
    """Random seed; the same seed on the same machine reproduces the run."""
    resume: bool = False
    """Continue an unfinished run in this folder from its latest checkpoint."""
    quiet: bool = False
    """Hide progress and tables."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    trackers: tuple[str, ...] = ()
    """Additional metric trackers: wandb, tensorboard, trackio, mlflow, or a custom module:NAME."""
    profile: bool = False
    """Profile three steps: write profile.txt, a table, and trace.json, for Perfetto."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, tokens_at_once=1)


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Engine that computes models."""

    engine: EngineName = "auto"
    """Engine: plain, the modules of transformers; cpu, kernels compiled for this CPU; gpu, compiled for an NVIDIA GPU;
    auto: cpu on a CPU, gpu on an NVIDIA GPU, else plain."""


@dataclass(frozen=True, kw_only=True)
class WeightSettings(RunSettings):
    """Training of all weights of a model, or of adapters."""

    model: Model
    lora: Lora = field(default_factory=Lora)
    optimiser: Optimiser = field(default_factory=Optimiser)

    RATES: ClassVar[Rates]
    """Learning rates if --optimiser.lr is omitted."""

    def __post_init__(self) -> None:
        if self.optimiser.lr is None:  # the settings that a run writes include its learning rate
            object.__setattr__(self, "optimiser", replace(self.optimiser, lr=self.RATES.of(self.lora)))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class BatchSettings(RunSettings):
    """Passes over data in batches, and evaluations meanwhile."""

    optimiser: Optimiser = field(default_factory=Optimiser)
    epochs: float = 1.0
    """Passes over the data."""
    batch_size: int = 16
    """Examples per optimiser step."""
    max_length: int = 1024
    """Maximum tokens of prompt and response together; longer examples are truncated and counted."""
    held_out: float = 0.05
    """Share of held-out data, which are evaluated."""
    evaluate_every: int = 50
    """Evaluate on the held-out data every N steps."""
    evaluate_rows: int = field(default=1000, metadata=LATER)
    """Held-out rows that an evaluation during training reads, evenly spaced over all of --held-out; 0 for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "epochs")
        at_least(self, batch_size=1, max_length=2, evaluate_every=1, evaluate_rows=0)
        a_share(self, "held_out")


@dataclass(frozen=True, kw_only=True)
class AnswerServers:
    """Servers that generate completions with a fixed model."""

    rollouts: str = ""
    """Addresses of vLLM or SGLang servers that generate the completions, separated by commas, such as
    http://localhost:8000; or vllm, for vLLM in this process, on the device of the model; by default the engine
    generates them. If the servers need a key, it is read from TUTELAGE_ENDPOINT_KEY."""

    @property
    def has_servers(self) -> bool:
        """Whether servers generate the completions, instead of this process."""
        return self.rollouts not in ("", COLOCATED)


@dataclass(frozen=True, kw_only=True)
class PolicySettings(AnswerServers, WeightSettings):
    """Training of a policy on its completions, which servers can generate."""

    sampling: Sampling = field(default_factory=Sampling)
    sync: Literal["auto", SyncName] = "auto"
    """How the servers of --rollouts receive new weights: lora, as an adapter; disk, as a whole model; nccl, as a whole
    model from GPU to GPU; auto: lora if --lora.rank is set, else disk."""
    sync_folder: str = ""
    """Folder for new weights, which the servers see at the same path; by default, one in --out."""

    @property
    def sync_by(self) -> SyncName:
        """Method by which the servers receive new weights."""
        if self.sync != "auto":
            return self.sync
        return "lora" if self.lora.rank else "disk"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.has_servers and (self.sync != "auto" or self.sync_folder):
            raise TutelageError(
                "--sync and --sync-folder set how the servers of --rollouts receive weights, and there are none: "
                "omit them."
            )
        if self.sync == "lora" and not self.lora.rank:
            raise TutelageError(
                "--sync lora sends an adapter, but --lora.rank is 0, which trains every weight. Use --sync disk."
            )
        if self.sync == "nccl" and self.lora.rank:
            raise TutelageError(
                "--sync nccl sends every weight, but --lora.rank trains an adapter: use --sync lora, which sends only "
                "the adapter."
            )
        if self.sync == "nccl" and self.sync_folder:
            raise TutelageError("--sync nccl writes no folder: omit --sync-folder.")
        if self.sampling.temperature == 0:
            raise TutelageError(
                "At temperature 0 all completions of a prompt are the same, and give no signal: use 0.7 or 1."
            )


@dataclass(frozen=True, kw_only=True)
class TrustSettings:
    """Check of a reward against the votes of a study."""

    trust: str = ""
    """Study (database file, folder, or postgresql:// URL) whose votes the reward is checked against before training:
    training is refused if the reward agrees less with the raters than they do with each other."""
    trust_study: str = ""
    """Name of the study, if the database holds several."""
    trust_anyway: bool = False
    """Train on a reward that --trust would refuse."""

    def check_trust(self) -> None:
        """Raise TutelageError for settings that have no effect."""
        if not self.trust and (self.trust_study or self.trust_anyway):
            raise TutelageError("--trust-study and --trust-anyway need --trust, which names a study.")


@dataclass(frozen=True, kw_only=True)
class RoundSettings(PolicySettings, TrustSettings):
    """Rounds of generating completions, scoring them and training on them."""

    prompts: str = ""
    """Prompts: a file or hub data set; any format of demonstrations or preferences works too."""
    reward: tuple[str, ...] = ()
    """Rewards of the completions: reward-model folders or module:function(prompts, answers) -> scores, each with an
    optional =weight; several are summed."""
    rounds: int = 1
    """Number of rounds; each begins with completions of the current policy."""
    prompts_per_round: int = 0
    """Prompts per round; 0 for all."""
    samples: int = 8
    """Completions per prompt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, rounds=1, prompts_per_round=0, samples=2)
        self.check_trust()


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """Episodes of several turns, in which the policy acts in an environment or with tools."""

    environment: str = field(default="", metadata=LATER)
    """Episodes of several turns: module:play, a function play(row, episode) that returns the reward of an episode, or a
    class with reset, tools as methods, and get_reward, as in TRL; verifiers:NAME, an installed taskset of verifiers, or
    verifiers:FILE.toml, a configuration of one, whose tasks the same value of --prompts names; or openenv:ADDRESS, a
    server of OpenEnv."""
    tools: tuple[str, ...] = field(default=(), metadata=LATER)
    """Tools that the policy may call: calculator, python, search:FILE, or module:function. Without --environment an
    episode ends with the first turn without a call, and --reward reads all of it."""
    agent: str = field(default="", metadata=LATER)
    """Episodes of a program, as its command line: it reads the row as JSON from standard input, and sends its requests
    to the policy at OPENAI_BASE_URL."""
    agent_processes: int = field(default=32, metadata=LATER)
    """Most programs of --agent, or sessions on a server of OpenEnv, at once, beyond those of one prompt."""
    turns: int = field(default=16, metadata=LATER)
    """Most turns of an episode, each of up to --sampling.max-new-tokens tokens."""
    environment_timeout: float = field(default=120.0, metadata=LATER)
    """Seconds that an environment may take between two turns before the episode is played again."""
    deterministic: bool = field(default=False, metadata=LATER)
    """Sample the next turn of all episodes together, so that results do not depend on the time that tools take. By
    default a turn is sampled as soon as its tools are done, together with turns of other episodes: that is faster, but
    with some engines the rounding depends on the time."""

    @property
    def has_episodes(self) -> bool:
        """Whether the policy acts in episodes of several turns."""
        return bool(self.environment or self.tools or self.agent)

    def check_episodes(self) -> None:
        """Raise TutelageError for limits out of range, and for limits of episodes without episodes."""
        at_least(self, turns=1, environment_timeout=0.001, agent_processes=1)
        for name in ("environment", "tools"):
            if self.agent and getattr(self, name):
                raise TutelageError(f"--agent is a program with tools of its own, so --{name} has no place: omit it.")
        kind = self.environment.partition(":")[0]
        if kind in (VERIFIERS, OPENENV) and self.tools:
            raise TutelageError(f"--environment {self.environment} has tools of its own: omit --tools.")
        for used, names, needs in (
            (self.has_episodes, ("turns", "environment_timeout", "deterministic"), "--environment, --tools or --agent"),
            (self.agent or kind == OPENENV, ("agent_processes",), "--agent or openenv:ADDRESS"),
        ):
            for flag in () if used else changed_flags(self, names):
                raise TutelageError(f"{flag} is about episodes with {needs}; it has no other effect.")


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(PolicySettings):
    """Steps of a recipe: a rollout followed by an update."""

    steps: int = 100
    """Number of rollouts, each followed by the update of the recipe."""
    batch_size: int = 64
    """Prompts per rollout; the recipe sets the number of completions of each."""
    optimiser: Optimiser = field(default_factory=lambda: Optimiser(eps=POLICY_EPS))
    sample_every: int = 10
    """Write completions to samples.jsonl every N steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, steps=1, batch_size=1, sample_every=1)
        if self.sampling.top_k or self.sampling.top_p < 1 or self.sampling.min_p:
            raise TutelageError(
                "The distribution that is sampled is trained; top_k, top_p or min_p would make the two differ. Use the "
                "temperature."
            )
        if self.lora.dropout:
            raise TutelageError("--lora.dropout would make the trained policy differ from the sampled one; omit it.")
