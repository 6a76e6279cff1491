"""Texts of the pages about preference losses; `generate.py` takes everything else from the code.

For each loss class: equation, paper, differences, degenerate cases, what to watch. In the equations h is the log-ratio
of the chosen completion minus that of the rejected one, and s the logistic function.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """Texts about one loss. `names` are the values of `tutelage dpo --loss`."""

    title: str
    paper: str
    names: tuple[str, ...]
    equation: str
    differs: tuple[tuple[str, str], ...]
    degenerates: str
    watch: str


LOSSES: dict[str, Words] = {
    "Dpo": Words(
        "Direct Preference Optimization",
        "Rafailov et al. 2023, arXiv 2305.18290; cDPO: Mitchell 2023",
        ("dpo", "cdpo"),
        "loss = -log s(beta h)                            dpo\n"
        "loss = -(1 - e) log s(beta h) - e log s(-beta h)   cdpo, e = smoothing",
        (
            ("a reward model with PPO", "no sampling: only the completions of the data are trained on, and no others."),
            (
                "ipo",
                "the loss never reaches its minimum; separated pairs are pushed further apart, more and more weakly.",
            ),
            ("cdpo", "trusts every label; cdpo has its minimum at an implied probability of 1 - e."),
        ),
        "with hard labels and without smoothing the minimum lies at h = infinity: given time, rejected "
        "completions are driven out of the distribution, regardless of the effect on the chosen ones.",
        "kl/chosen, by how many nats the chosen completions became less likely: small is healthy, a steady rise is a "
        "reason to stop; held_out/loss, which begins to rise long before held_out/accuracy begins to fall.",
    ),
    "RobustDpo": Words(
        "Robust DPO",
        "Chowdhury et al. 2024, arXiv 2403.00409",
        ("robust",),
        "loss = [(1 - e) L(h) - e L(-h)] / (1 - 2 e),   L(h) = -log s(beta h),   e = flips",
        (
            (
                "cdpo",
                "corrects for flipped labels instead of hedging: its mean over flips is the loss on clean labels.",
            ),
            ("dpo", "subtracts the expected contribution of flipped pairs, so single pairs may have a negative loss."),
        ),
        "with flips = 0 it would be dpo; near one half the correction divides by almost zero and multiplies the noise.",
        "loss below 0 is normal; the margin grows faster than dpo's, so check kl/chosen sooner.",
    ),
    "Ipo": Words(
        "Identity Preference Optimization",
        "Azar et al. 2023, arXiv 2310.12036",
        ("ipo",),
        "loss = (h - 1/(2 beta))^2      with h per token if per_token = true",
        (
            ("dpo", "a finite target for the margin, however certain the label."),
            ("hinge", "a pair beyond the target is pulled back."),
        ),
        "with labels of one half both orders pull, and the minimum is h = 0: the reference itself.",
        "margin, which should settle near 1/2 (beta times its target); with a large beta it is close to 0.",
    ),
    "Hinge": Words(
        "Hinge loss on log-ratios",
        "Liu et al. 2023, arXiv 2309.06657 (RSO)",
        ("hinge",),
        "loss = max(0, 1 - beta h)",
        (
            ("dpo", "a pair with a margin of 1/beta nats or more has no gradient."),
            ("slic", "measures relative to the reference."),
        ),
        "once all margins are beyond 1/beta the gradient is exactly 0.",
        "loss, the share of pairs with a gradient times their distance; accuracy stops growing before it is 0.",
    ),
    "Slic": Words(
        "Sequence Likelihood Calibration",
        "Zhao et al. 2023, arXiv 2305.10425 (SLiC-HF)",
        ("slic",),
        "loss = max(0, delta - [log pi(chosen) - log pi(rejected)]) - imitation * log pi(chosen) / length",
        (
            ("hinge", "no reference: imitation of the chosen completions restrains the policy."),
            ("orpo", "a margin in nats of whole completions, so long completions count more."),
        ),
        "with imitation = 0 the policy can make both completions unlikely.",
        "kl/chosen, which imitation should keep below 0: the chosen completions become more likely.",
    ),
    "Kto": Words(
        "Kahneman-Tversky Optimization",
        "Ethayarajh et al. 2024, arXiv 2402.01306",
        ("kto",),
        "loss = desirable   * (1 - s(beta (log-ratio - z)))    of a good completion\n"
        "       undesirable * (1 - s(beta (z - log-ratio)))    of a bad one\n"
        "z = max(0, mean log-ratio of completions of other prompts), an estimate of the KL, held constant",
        (
            (
                "dpo",
                "judges completions one by one against z, so it can use thumbs up and down without pairs (--unpaired).",
            ),
            ("ipo", "saturates on both sides: very bad and very good completions have no gradient."),
        ),
        "if all completions are far on one side of z, every sigmoid is flat and the gradient vanishes.",
        "the drift z, and the balance of good and bad completions, for which desirable and undesirable compensate.",
    ),
    "Orpo": Words(
        "Odds Ratio Preference Optimization",
        "Hong et al. 2024, arXiv 2403.07691",
        ("orpo",),
        "loss = -log pi(chosen) / length - coef * log s(log odds(chosen) - log odds(rejected))\n"
        "odds = p / (1 - p),  p = exp(log pi / length)",
        (
            ("dpo", "no reference and no SFT before: imitation and preference in one loss."),
            ("slic", "odds of the mean token instead of nats of the whole completion, so length does not matter."),
        ),
        "for completions of small probability, odds and probability are the same, and it is simpo with imitation.",
        "kl/chosen below 0; the first term is most of the loss, so read accuracy, not loss.",
    ),
    "SimPo": Words(
        "Simple Preference Optimization",
        "Meng et al. 2024, arXiv 2405.14734",
        ("simpo",),
        "loss = -log s(beta [log pi(chosen)/length - log pi(rejected)/length - gap])",
        (
            ("dpo", "no reference, and per token: the score is the mean log-probability per token."),
            ("orpo", "no imitation: only differences are trained."),
        ),
        "without a reference only beta and the number of steps limit the distance.",
        "length/mean of fresh samples (tutelage evaluate), and kl/chosen, which is unconstrained.",
    ),
}
