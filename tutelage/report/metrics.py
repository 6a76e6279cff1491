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
PER_TOKEN, PER_ANSWER = "nats per token", "nats per completion"

EVERY_RUN = (
    Metric("step", "Completed optimiser steps, or rollouts of `improve`.", COUNT),
    Metric("seconds", "Time since the run started or resumed.", "seconds"),
    Metric("lr", "The scheduled learning rate."),
    Metric("grad_norm", "Norm of the gradient before clipping.", "", "Spikes are a warning; at 0 nothing is learned."),
    Metric("tokens_per_second", "Speed.", "tokens per second", "Dips come from the machine, not the model."),
    Metric(
        "tokens_at_once",
        "Maximum number of padded tokens in one forward pass with gradients.",
        TOKENS,
        "Halved after running out of memory; the result is the same.",
    ),
)
"""Metrics of (almost) every run."""

SUPERVISED = (
    Metric(
        "loss",
        "The training loss, over the batch.",
        "nats per token; per comparison with preferences, per rated step with `--steps`",
    ),
    Metric(HELD_OUT + "loss", "The loss on held-out examples.", "as `loss`"),
    Metric(HELD_OUT + "perplexity", "exp of the held-out loss.", "equally likely tokens"),
)
"""Language models: `pretrain`, `sft` and `rejection`; the losses also of `reward` and `dpo`."""

PREFERENCES = (
    Metric(
        "accuracy",
        "Share of comparisons ordered as by the raters; with `--steps`, of rated steps whose score has the sign of "
        "their label. Ties and even labels count half.",
        SHARE,
        "It rises from 0.5, or from the share of the more frequent label.",
    ),
    Metric(HELD_OUT + "accuracy", "The same on held-out comparisons or steps.", SHARE),
    Metric(
        "margin",
        "Score of the chosen minus the rejected completion; in `dpo` β times the difference of log-ratios.",
        "scores",
    ),
    Metric(HELD_OUT + "margin", "The same on held-out comparisons.", "scores", "It follows `margin`."),
    Metric(
        "kl/chosen",
        "Decrease of the chosen completions' log-probability relative to the reference.",
        PER_ANSWER,
        "Around 0 or below; far above 0 the chosen completions are becoming less likely as well.",
    ),
    Metric(
        "kl/rejected",
        "Decrease of the rejected completions' log-probability relative to the reference.",
        PER_ANSWER,
        "It rises, and faster than `kl/chosen`.",
    ),
    Metric(HELD_OUT + "kl/chosen", "`kl/chosen` on held-out comparisons.", PER_ANSWER),
    Metric(HELD_OUT + "kl/rejected", "`kl/rejected` on held-out comparisons.", PER_ANSWER),
)
"""`reward` (without the KL) and `dpo`."""

OWN_ANSWERS = (
    Metric("round", "The round, counted from 1.", COUNT),
    Metric("kept", "Completions, or pairs of them, of this round that are trained on.", COUNT, "Far above 0."),
    Metric("score/kept", "Mean score of the completions that are trained on.", "scores", "Above `score/mean`."),
    Metric(HELD_OUT + "score", "Mean score of the completions of held-out prompts.", "scores", "It rises."),
    Metric(HELD_OUT + "ended", "Share of those completions that end with an end token.", SHARE, "Near 1."),
)
"""`rejection` and `dpo --prompts`, once per round."""

SCORES = (
    Metric("score/mean", "Mean reward of all completions of the step.", "scores"),
    Metric(
        "score/std",
        "Standard deviation of the scores within a step.",
        "scores",
        "At 0 the reward model does not distinguish completions.",
    ),
    Metric(
        "score/shaped",
        "The score used for training, after the treatment of truncated completions, clipping and normalisation.",
        "scores",
    ),
    Metric(f"score/{PART}/mean", "Score of one part of the reward, before weighting.", "scores", "No part falls."),
    Metric(f"score/{PART}/std", "Its standard deviation within a step.", "scores", "Above 0."),
    Metric(
        f"score/{PART}/dead",
        "Share of prompts whose completions all have the same score by it.",
        SHARE,
        "Below 1: a part that is always 1 gives no learning signal.",
    ),
    Metric(f"{PART}/mean", "Score by a reward of `--watch`, which is not trained on; `gold` in the demonstration."),
    Metric("groups/dead", "Share of prompts whose completions all have the same score.", SHARE),
    Metric(
        "sampling/rounds",
        "Sampling rounds that dynamic sampling needed to fill the batch.",
        COUNT,
        "1 to 3; at the limit too few prompts give a learning signal.",
    ),
    Metric(
        "sampling/unscored",
        "Prompts left out of the step because the reward does not apply to one of their completions.",
        COUNT,
    ),
    Metric("turns/mean", "Turns of an episode.", "turns"),
    Metric("turns/reward", "Sum of the rewards that the environment gave for the turns of an episode.", "reward"),
    Metric(
        "branches/mean",
        "Contexts of an episode: more than 1 if the chat template writes earlier turns in another way later.",
        "contexts",
    ),
    Metric(
        "tokens/read",
        "Tokens that the policy read or wrote in forward passes for the episodes of the step; a prompt of several "
        "episodes counts once.",
        TOKENS,
    ),
    Metric(
        "tokens/reread",
        "Of these, tokens of an episode's past that it had read before: 0 if keys and values are kept between turns. "
        "More with `--deterministic`, or if they do not fit into memory or the model or engine cannot keep them.",
        TOKENS,
    ),
    Metric("tokens/rejected", "Tokens of drafts of a turn that it did not take.", TOKENS),
    Metric("tools/calls", "Calls of tools in the step.", COUNT),
    Metric("tools/unknown", "Of these, calls of a tool that does not exist.", COUNT),
    Metric("tools/unreadable", "Calls whose arguments do not parse or fit.", COUNT),
    Metric("tools/timeouts", "Calls without a result in time.", COUNT),
    Metric("tools/failures", "Calls that ended with an error of the tool.", COUNT),
    Metric("tools/faults", "Calls that failed for a fault outside of the policy; they are repeated.", COUNT),
    Metric(f"tools/{PART}/calls", "Calls of one tool in the step.", COUNT),
    Metric(f"tools/{PART}/failed", "Of these, calls that ended with a time-out, an error or a fault.", COUNT),
    Metric("ended", "Share of completions that end with an end token.", SHARE),
    Metric("length/mean", "Length of the completions, including the end token.", TOKENS),
    Metric("judge/requests", "Requests sent to judges since the start of the run.", COUNT),
    Metric("judge/kept", "Requests answered from the cache.", COUNT),
    Metric("judge/tokens", "Input and output tokens of judges.", TOKENS),
    Metric("judge/cost", "Their cost, by `price_read` and `price_written`.", "your currency"),
    Metric(
        "judge/missing",
        "Criteria of rubrics without a verdict, because neither of two replies had one; scores omit them.",
        COUNT,
        "0: a judge without verdicts does not follow its prompt.",
    ),
    Metric(
        "rules/over_limits",
        "Completions that rules could not read within their limits of size and time since the run began; they score as "
        "those that do not match.",
        COUNT,
        "0, or a few: a policy that writes more of them earns nothing by them.",
    ),
)
"""Sampled completions and their scores: `improve`, and other commands that sample and score."""

DISTANCE = (
    Metric("kl/reference", "KL(sampler‖reference) by the estimator k1.", PER_ANSWER),
    Metric(
        "kl/reference_k3",
        "Non-negative estimator of the same distance.",
        PER_ANSWER,
        "Far from `kl/reference`: too few samples.",
    ),
    Metric(
        "penalty/coef",
        "Coefficient of the KL penalty.",
        "scores per nat",
        "Constant except with an adaptive controller.",
    ),
    Metric("divergence", "Divergence from the reference or teacher, over full distributions.", PER_TOKEN),
    Metric("entropy", "Entropy of the policy, by −log π of the sampled tokens.", PER_TOKEN),
    Metric(
        "entropy/full",
        "Entropy over full distributions, if the objective has an entropy bonus.",
        PER_TOKEN,
        "As `entropy`.",
    ),
)
"""Distance of the policy from its reference: `improve` and `distill`."""

UPDATE = (
    Metric("policy/objective", "The objective of the update.", "", "Its level means little; spikes are a warning."),
    Metric("advantage/mean", "Mean of Ψ over tokens.", "scores", "Near 0; otherwise a baseline is missing."),
    Metric("advantage/std", "Standard deviation of Ψ over tokens.", "scores", "At 0 there is no learning signal."),
    Metric("clip_fraction", "Share of tokens with a gradient clipped by the surrogate objective.", SHARE),
    Metric("kl/old", "KL(sampler‖policy) during the update.", PER_TOKEN, "Below .02, small and even."),
    Metric("kl/update", "KL(sampler‖policy) after the update, if a controller needs it.", PER_TOKEN, "As `kl/old`."),
    Metric(
        "ratio/max",
        "Largest probability ratio of a token within an update.",
        "",
        "Near 1 with one step per rollout; spikes mean that an update was too large.",
    ),
    Metric(
        "surrogate/coef", "Coefficient of the penalty on `kl/update` in recipes with one (`ppo_penalty`).", "per nat"
    ),
    Metric(
        "updates", "Optimiser steps on the batch.", COUNT, "Fewer than planned if an update stopped early on its KL."
    ),
    Metric("skipped", "Share of completions skipped because their gradient is zero.", SHARE, "As `groups/dead`."),
    Metric("tokens/kept", "Tokens whose activations were reused from sampling (engine `cpu`).", TOKENS),
    Metric("step/gain", "Increase of the objective by a natural gradient step.", "", "Above 0."),
    Metric(
        "step/share",
        "Share of the natural gradient step that the line search accepted.",
        SHARE,
        "Above 0: the search found an improvement.",
    ),
    Metric("ptx/loss", "The loss on the mixed-in pretraining text.", PER_TOKEN, "It should not rise."),
    Metric("value/loss", "Squared error of the critic.", "scores²"),
    Metric("value/explained_variance", "Share of the variance of the returns that the critic predicts.", SHARE),
)
"""Policy updates of `improve` and `distill`."""

SAMPLER = (
    Metric(
        "sampler/mismatch",
        "Mean absolute difference between sampler and trainer log-probabilities per token.",
        NATS,
        "A trace in float32, .05 in bf16.",
    ),
    Metric("sampler/kl", "The same as KL(sampler‖trainer).", PER_TOKEN, "It should neither grow nor spike."),
    Metric(
        "sampler/ratio_max", "Largest probability ratio of a token, trainer over sampler.", "", "Near 1 in float32."
    ),
    Metric(
        "sampler/truncated",
        "Share of tokens whose importance weight is truncated at `--mismatch-cap`.",
        SHARE,
        "Small; a large share biases the gradient.",
    ),
    Metric("staleness/mean", "Mean policy lag of a token, in versions of the weights.", "steps"),
    Metric("staleness/max", "Policy lag of the oldest token.", "steps", "At most `--staleness`."),
)
"""Differences between sampler and trainer: bf16, servers, asynchronous rollouts."""

GROUPS = {
    "Every run": EVERY_RUN,
    "Losses": SUPERVISED,
    "Comparisons": PREFERENCES,
    "Rounds of own completions": OWN_ANSWERS,
    "Completions and scores": SCORES,
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
    if len(opening) == 2 and opening[0] in ("score", "tools"):
        return METRICS.get(f"{opening[0]}/{PART}/{last}")
    return METRICS.get(f"{PART}/{last}") if len(opening) == 1 else None
