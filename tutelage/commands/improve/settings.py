"""Settings of reinforcement learning against a reward."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tutelage.base import config
from tutelage.base.config.bases import RecipeSettings, TrustSettings
from tutelage.base.config.bounds import at_least
from tutelage.base.errors import TutelageError
from tutelage.rewards.names import reward_models


@dataclass(frozen=True, kw_only=True)
class ImproveSettings(RecipeSettings, TrustSettings):
    """Improve a policy against a reward by reinforcement learning: sample answers, score them, update, repeat."""

    model: config.Model
    prompts: str
    """Prompts to answer: a file or hub data set; any format of demonstrations or preferences serves too."""
    reward: tuple[str, ...]
    """What scores the answers: reward-model folders, module:function(completions) -> scores, rules such as
    rule:math, judges as judge:FILE.toml, each with an optional =weight; several add up."""
    recipe: str = "ppo"
    """The algorithm, as `tutelage recipes` lists them, or module:NAME of your own."""
    set: tuple[str, ...] = ()
    """Changes to the recipe, such as penalty.coef=0.1, or shaping.missing_end=none, with which answers that were cut at
    the limit keep the reward's scores."""
    sampling: config.Sampling = field(
        default_factory=lambda: config.Sampling(temperature=0.7, max_new_tokens=64)
    )
    critic: Literal["trunk", "network"] = "trunk"
    """Where the values come from, if the recipe wants any: a head on the policy's own trunk (one forward pass for
    both), or a network of its own."""
    critic_from: str = ""
    """What a critic network begins as: a reward model or language model; empty takes the first reward model."""
    critic_lr: float = 0.0
    """Learning rate of the critic; 0 takes the policy's."""
    ptx: str = ""
    """Demonstrations or text whose likelihood is kept up beside the objective (PPO-ptx); needs --set ptx=WEIGHT."""
    mismatch: Literal["auto", "recompute", "truncated", "none"] = "auto"
    """Where bf16 or --staleness makes the sampler's probabilities differ from those of the training pass. recompute,
    which auto takes for bf16 unless both have the same bits: the old ones are the training pass's; truncated, which
    auto takes with --staleness: the same, and every token is weighed by training / sampling, at most --mismatch-cap;
    none: the sampler's, and the difference is only measured."""
    mismatch_cap: float = 2.0
    """Largest weight of a token under --mismatch truncated."""
    staleness: int = 0
    """Maximum policy lag (off-policy steps): so many rollouts are written ahead by the servers of --rollouts while the
    policy is trained. With 0 every step waits for its own rollout."""
    watch: tuple[str, ...] = ()
    """Further scores to log and not to train on, as name=module:function or name=folder."""

    RATES: ClassVar[config.Rates] = config.Rates(all=3e-6, lora=1e-4)
    """Learning rates if --optimiser.lr is omitted."""

    @property
    def mismatched_by(self) -> Literal["recompute", "truncated", "none"] | None:
        """What is done where sampler and trainer differ. None leaves that to the policy, whose sampler may be exact."""
        if self.mismatch != "auto":
            return self.mismatch
        if self.staleness:
            return "truncated"
        return "recompute" if self.model.dtype != "float32" and self.rollouts else None

    @property
    def critic_source(self) -> str:
        """What a critic network begins as: `critic_from`, the first reward model, or else the policy."""
        return self.critic_from or next(iter(reward_models(self.reward)), self.model.path)

    def __post_init__(self) -> None:
        config.settle_rate(self)
        super().__post_init__()
        at_least(self, critic_lr=0, mismatch_cap=1.0, staleness=0)
        _refuse_inert_mismatch(self)
        self.check_trust()
        sampling = self.sampling
        if sampling.top_k or sampling.top_p < 1 or sampling.min_p:
            raise TutelageError(
                "improve learns from the distribution it samples from; top_k, top_p or min_p would make the two "
                "differ. Use the temperature."
            )
        if sampling.temperature == 0:
            raise TutelageError(
                "At temperature 0 every sample is the same and nothing can be learnt; use 0.7 or 1."
            )
        if self.lora.dropout:
            raise TutelageError(
                "--lora.dropout would make the policy that learns another than the one that sampled; leave it out."
            )
        if self.critic == "trunk" and self.critic_from:
            raise TutelageError(
                "--critic-from names what a critic network begins as, but --critic is trunk. Use --critic network."
            )


def _refuse_inert_mismatch(settings: ImproveSettings) -> None:
    """Refuse a correction of what does not differ, and a cap that nothing is held at."""
    if settings.staleness and not settings.rollouts:
        raise TutelageError(
            "--staleness has rollouts written ahead by the servers of --rollouts, and there are none: leave it out."
        )
    if settings.staleness and settings.mismatch == "none":
        raise TutelageError(
            "With --staleness the sampler is an older policy, and --mismatch none would take its probabilities for the "
            "policy's. Use truncated, which auto takes, or recompute."
        )
    exact = settings.model.dtype == "float32" and not settings.staleness
    if exact and settings.mismatch in ("recompute", "truncated"):
        raise TutelageError(
            f"In float32 the sampler's probabilities are those of training, so --mismatch {settings.mismatch} would "
            "correct nothing. Leave it out."
        )
    if settings.mismatched_by != "truncated" and settings.mismatch_cap != ImproveSettings.mismatch_cap:
        raise TutelageError(
            "--mismatch-cap bounds the weights of --mismatch truncated; it does nothing else."
        )
