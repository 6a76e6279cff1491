"""Settings of reinforcement learning against a reward."""

from dataclasses import dataclass, field
from typing import Literal

from tutelage.base import config
from tutelage.base.config.bases import EpisodeSettings, RecipeSettings, TrustSettings
from tutelage.base.config.bounds import at_least
from tutelage.base.errors import TutelageError
from tutelage.rewards.names import reward_models


@dataclass(frozen=True, kw_only=True)
class ImproveSettings(RecipeSettings, TrustSettings, EpisodeSettings):
    """Improve a policy against a reward by reinforcement learning: sample completions, score them, update, repeat."""

    prompts: str
    """Prompts: a file or hub data set; any format of demonstrations or preferences works too."""
    reward: tuple[str, ...] = ()
    """Rewards of the completions: reward-model folders, module:function(completions) -> scores, rules such as
    rule:math, judges as judge:FILE.toml, each with an optional =weight; several are summed. With --environment they are
    added to what it returns, and may be omitted."""
    recipe: str = "ppo"
    """Algorithm, from the list of `tutelage recipes`, or a custom module:NAME."""
    set: tuple[str, ...] = ()
    """Changes to the recipe, such as penalty.coef=0.1, or shaping.missing_end=none, for which completions cut at the
    limit keep the reward's scores."""
    sampling: config.Sampling = field(default_factory=lambda: config.Sampling(temperature=0.7, max_new_tokens=64))
    critic: Literal["trunk", "network"] = "trunk"
    """Source of the values, if the recipe needs them: a head on the policy's trunk (one forward pass for both), or a
    separate network."""
    critic_from: str = ""
    """Initial weights of a critic network: a reward model or language model; by default the first reward model."""
    critic_lr: float = 0.0
    """Learning rate of the critic; 0 for the policy's."""
    ptx: str = ""
    """Demonstrations or text whose likelihood is added to the objective (PPO-ptx); needs --set ptx=WEIGHT."""
    mismatch: Literal["auto", "recompute", "truncated", "none"] = "auto"
    """Correction if bf16 or --staleness makes the sampler's probabilities differ from training. recompute: old
    log-probabilities from the training pass (auto for bf16, unless both are bit-identical); truncated: the same, and
    every token weighted by training / sampling, at most --mismatch-cap (auto with --staleness); none: those of the
    sampler, and the difference is only measured."""
    mismatch_cap: float = 2.0
    """Maximum weight of a token under --mismatch truncated."""
    staleness: int = 0
    """Maximum policy lag (off-policy steps): the servers of --rollouts generate up to this many rollouts ahead while
    the policy is trained. With 0 every step waits for its own rollout."""
    watch: tuple[str, ...] = ()
    """Additional rewards to log but not train on, as name=module:function or name=folder."""

    RATES = config.Rates(all=3e-6, lora=1e-4)

    @property
    def mismatched_by(self) -> Literal["recompute", "truncated", "none"] | None:
        """Correction if sampler and trainer differ. None lets the policy decide, whose sampler may be exact."""
        if self.mismatch != "auto":
            return self.mismatch
        if self.staleness:
            return "truncated"
        return "recompute" if self.model.dtype != "float32" and self.rollouts else None

    @property
    def critic_source(self) -> str:
        """Initial model of a critic network: `critic_from`, the first reward model, or else the policy."""
        return self.critic_from or next(iter(reward_models(self.reward)), self.model.path)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, critic_lr=0, mismatch_cap=1.0, staleness=0)
        self.check_episodes()
        if not (self.reward or self.environment):
            raise TutelageError(
                "No reward was given: name a reward-model folder, module:function, rule:name or judge:file with "
                "--reward, or an --environment that returns one."
            )
        _refuse_inert_mismatch(self)
        self.check_trust()
        if self.critic == "trunk" and self.critic_from:
            raise TutelageError(
                "--critic-from initialises a critic network, but --critic is trunk. Use --critic network."
            )


def _refuse_inert_mismatch(settings: ImproveSettings) -> None:
    """Refuse corrections and caps that have no effect."""
    if settings.staleness and not settings.has_servers:
        raise TutelageError(
            "--staleness needs the servers of --rollouts to generate ahead, and there are none: omit it."
        )
    if settings.staleness and settings.mismatch == "none":
        raise TutelageError(
            "With --staleness the sampler is an older policy, and --mismatch none would use its probabilities as the "
            "policy's. Use truncated, the choice of auto, or recompute."
        )
    exact = settings.model.dtype == "float32" and not settings.staleness
    if exact and settings.mismatch in ("recompute", "truncated"):
        raise TutelageError(
            f"In float32 the sampler's probabilities are those of training, so --mismatch {settings.mismatch} would "
            "correct nothing. Omit it."
        )
    if settings.mismatched_by != "truncated" and settings.mismatch_cap != ImproveSettings.mismatch_cap:
        raise TutelageError("--mismatch-cap bounds the weights of --mismatch truncated; it has no other effect.")
