"""Table of all metrics in metrics.jsonl: meaning, unit, healthy range.

For metrics with a panel, the healthy range is in `tutelage.report.panels` with its curve.
"""

from dataclasses import dataclass

PART = "<part>"
"""Placeholder for the name of a part of the reward, or of a reward that is only monitored."""
HELD_OUT = "held_out/"


@dataclass(frozen=True)
class Metric:
    """A metric by its name in metrics.jsonl. A name with `<part>` stands for one metric per part of the reward."""

    name: str
    meaning: str
    unit: str = ""
    healthy: str = ""
    """Behaviour in a healthy run, and warning signs; empty if a panel describes it."""


NATS, SHARE, TOKENS, COUNT = "nats", "share", "tokens", "count"
PER_TOKEN, PER_ANSWER = "nats per token", "nats per answer"

EVERY_RUN = (
    Metric("step", "Optimiser steps, or rollouts of `improve`, that are done.", COUNT),
    Metric("seconds", "Time since the run was started or resumed.", "seconds"),
    Metric("lr", "The learning rate, as it was scheduled."),
    Metric(
        "grad_norm",
        "The size of the gradient before clipping.",
        "",
        "Leaps announce trouble; 0 means nothing is learnt.",
    ),
    Metric("tokens_per_second", "Speed.", "tokens per second", "A dip is the machine's, not the model's."),
    Metric(
        "tokens_at_once",
        "Padded tokens of one forward pass with gradients at most.",
        TOKENS,
        "It halves where memory ran out; the result is the same.",
    ),
)
"""Metrics of (almost) every run."""

SUPERVISED = (
    Metric("loss", "What is minimised, over the batch.", "nats per token; per comparison with preferences"),
    Metric(HELD_OUT + "loss", "The loss on examples that are kept aside.", "as `loss`"),
    Metric(HELD_OUT + "perplexity", "exp of the held-out loss.", "equally likely tokens"),
)
"""Language models: `pretrain`, `sft` and `rejection`; the losses also of `reward` and `dpo`."""

PREFERENCES = (
    Metric(
        "accuracy",
        "Share of the comparisons that are ordered as the raters did; ties count a half.",
        SHARE,
        "It rises from a half.",
    ),
    Metric(HELD_OUT + "accuracy", "The same on comparisons that are kept aside.", SHARE),
    Metric(
        "margin",
        "Score of the preferred answer less the other's; in `dpo` β times the difference of log-ratios.",
        "scores",
    ),
    Metric(
        HELD_OUT + "margin", "The same on comparisons that are kept aside.", "scores", "It follows `margin`."
    ),
    Metric(
        "kl/chosen",
        "How much less likely the preferred answers are than under the reference.",
        PER_ANSWER,
        "Around 0 or below it; far above 0 the chosen answers are becoming less likely as well.",
    ),
    Metric(
        "kl/rejected",
        "How much less likely the other answers are than under the reference.",
        PER_ANSWER,
        "It rises, and faster than `kl/chosen`.",
    ),
    Metric(HELD_OUT + "kl/chosen", "`kl/chosen` on comparisons that are kept aside.", PER_ANSWER),
    Metric(HELD_OUT + "kl/rejected", "`kl/rejected` on comparisons that are kept aside.", PER_ANSWER),
)
"""`reward` (without the KL) and `dpo`."""

OWN_ANSWERS = (
    Metric("round", "The round, counted from 1.", COUNT),
    Metric("kept", "Answers, or pairs of them, of this round that are trained on.", COUNT, "Far above 0."),
    Metric("score/kept", "Mean score of the answers that are trained on.", "scores", "Above `score/mean`."),
    Metric(
        HELD_OUT + "score", "Mean score of the answers to prompts that are kept aside.", "scores", "It rises."
    ),
    Metric(HELD_OUT + "ended", "Share of those answers that ended by themselves.", SHARE, "Near 1."),
)
"""`rejection` and `dpo --prompts`, once per round."""

SCORES = (
    Metric("score/mean", "What the reward gave, over all answers of the step.", "scores"),
    Metric(
        "score/std",
        "The spread of the scores within a step.",
        "scores",
        "At 0 all answers look alike to the reward model.",
    ),
    Metric(
        "score/shaped",
        "What is trained on: the score after the treatment of cut answers, clipping and normalisation.",
        "scores",
    ),
    Metric(
        f"score/{PART}/mean",
        "Score of one part of the reward, before its weight.",
        "scores",
        "No part falls.",
    ),
    Metric(f"score/{PART}/std", "Its spread within a step.", "scores", "Above 0."),
    Metric(
        f"score/{PART}/dead",
        "Share of the prompts whose answers it all gave one score.",
        SHARE,
        "Below 1: a part that is 1 throughout teaches nothing.",
    ),
    Metric(
        f"{PART}/mean",
        "Score by a reward of `--watch`, which nothing is trained on; `gold` in the demonstration.",
    ),
    Metric("groups/dead", "Share of the prompts whose answers all scored the same.", SHARE),
    Metric(
        "sampling/rounds",
        "Rounds of sampling that dynamic sampling took to fill the batch.",
        COUNT,
        "1 to 3; at its limit too few prompts teach.",
    ),
    Metric("ended", "Share of the answers that ended by themselves.", SHARE),
    Metric("length/mean", "Length of the answers, the end token included.", TOKENS),
    Metric("judge/requests", "Requests that were sent to judges since the run began.", COUNT),
    Metric("judge/kept", "Requests that were answered by replies that were kept.", COUNT),
    Metric("judge/tokens", "Tokens that judges read and wrote.", TOKENS),
    Metric("judge/cost", "What they cost, by `price_read` and `price_written`.", "your currency"),
    Metric(
        "rules/over_limits",
        "Answers that rules could not read within their limits of size and time since the run began; they score as "
        "those that do not match.",
        COUNT,
        "0, or a few: a policy that writes more of them earns nothing by them.",
    ),
)
"""Sampled answers and their scores: `improve`, and other commands that sample and score."""

DISTANCE = (
    Metric("kl/reference", "KL(sampler‖reference) by the estimator k1.", PER_ANSWER),
    Metric(
        "kl/reference_k3",
        "Another estimate of the same distance, never negative.",
        PER_ANSWER,
        "Far from `kl/reference`: too few samples.",
    ),
    Metric(
        "penalty/coef",
        "The price of a nat of KL.",
        "scores per nat",
        "It moves only under an adaptive controller.",
    ),
    Metric("divergence", "Divergence from the reference or teacher, by whole distributions.", PER_TOKEN),
    Metric("entropy", "Entropy of the policy, by −log π of the sampled tokens.", PER_TOKEN),
    Metric(
        "entropy/full",
        "Entropy by whole distributions, where the objective has an entropy bonus.",
        PER_TOKEN,
        "As `entropy`.",
    ),
)
"""Distance of the policy from its reference: `improve` and `distill`."""

UPDATE = (
    Metric(
        "policy/objective",
        "What the update maximises.",
        "",
        "Its level means little, leaps do.",
    ),
    Metric(
        "advantage/mean", "Mean of Ψ over tokens.", "scores", "Near 0; far from it a baseline is missing."
    ),
    Metric(
        "advantage/std",
        "The spread of Ψ over tokens.",
        "scores",
        "At 0 there is nothing to tell good answers from bad.",
    ),
    Metric("clip_fraction", "Share of the tokens whose gradient the surrogate cut.", SHARE),
    Metric("kl/old", "KL(sampler‖policy) during the update.", PER_TOKEN, "Below .02, small and even."),
    Metric(
        "kl/update",
        "KL(sampler‖policy) after the update, where a controller needs it.",
        PER_TOKEN,
        "As `kl/old`.",
    ),
    Metric(
        "ratio/max",
        "The largest change of a token's probability within an update, as a factor.",
        "",
        "Near 1 with one step per rollout; a leap means that an update went too far.",
    ),
    Metric("surrogate/coef", "The price of `kl/update`, of recipes that set it (`ppo_penalty`).", "per nat"),
    Metric(
        "updates",
        "Optimiser steps that were taken on the batch.",
        COUNT,
        "Fewer than planned when an update stopped early on its KL.",
    ),
    Metric(
        "skipped", "Share of the answers that have no gradient and were left out.", SHARE, "As `groups/dead`."
    ),
    Metric("tokens/kept", "Tokens whose activations were taken from sampling (engine `cpu`).", TOKENS),
    Metric("step/gain", "Rise of the objective by a natural step.", "", "Above 0."),
    Metric(
        "step/share",
        "Share of the natural step that its search took.",
        SHARE,
        "Above 0: the search found a step that helps.",
    ),
    Metric("ptx/loss", "The loss on pretraining text that is mixed in.", PER_TOKEN, "It should not rise."),
    Metric("value/loss", "Squared error of the critic.", "scores²"),
    Metric(
        "value/explained_variance", "Share of the variance of the returns that the critic predicts.", SHARE
    ),
)
"""Policy updates of `improve` and `distill`."""

SAMPLER = (
    Metric(
        "sampler/mismatch",
        "How far sampler and trainer disagree on a token.",
        NATS,
        "A trace in float32, .05 in bf16.",
    ),
    Metric("sampler/kl", "The same as KL(sampler‖trainer).", PER_TOKEN, "It should neither grow nor leap."),
    Metric(
        "sampler/ratio_max",
        "The token on which they disagree most, as trainer over sampler.",
        "",
        "Near 1 in float32.",
    ),
    Metric(
        "sampler/truncated",
        "Share of the tokens whose weight is held at `--mismatch-cap`.",
        SHARE,
        "Small: many mean a biased gradient.",
    ),
    Metric("staleness/mean", "Versions by which the weights that wrote a token are behind.", "steps"),
    Metric("staleness/max", "The same of the oldest token.", "steps", "At most `--staleness`."),
)
"""Differences between sampler and trainer: bf16, servers, asynchronous rollouts."""

GROUPS = {
    "Every run": EVERY_RUN,
    "Losses": SUPERVISED,
    "Comparisons": PREFERENCES,
    "Rounds of own answers": OWN_ANSWERS,
    "Answers and scores": SCORES,
    "Distance and entropy": DISTANCE,
    "Updates": UPDATE,
    "Sampler and trainer": SAMPLER,
}
METRICS = {metric.name: metric for metrics in GROUPS.values() for metric in metrics}


def metric_of(name: str) -> Metric | None:
    """The entry for a name in metrics.jsonl; None for names that Tutelage does not write."""
    if name in METRICS:
        return METRICS[name]
    *opening, last = name.split("/")
    if len(opening) == 2 and opening[0] == "score":
        return METRICS.get(f"score/{PART}/{last}")
    return METRICS.get(f"{PART}/{last}") if len(opening) == 1 else None
