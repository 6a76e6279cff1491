"""The words of the pages about preference losses: everything else on them is taken from the code by `generate.py`.

Each names its loss class: equation, paper, what it differs in, when it degenerates, what to watch. In the equations h
is the log-ratio of the chosen answer less that of the rejected one, and s the logistic function.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """What is said about one loss. `names` are those that `tutelage dpo --loss` takes."""

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
            (
                "a reward model with PPO",
                "no sampling: only answers that somebody wrote down teach, and off them nothing.",
            ),
            (
                "ipo",
                "the loss never ends; a pair that is told apart is pushed further apart, more and more weakly.",
            ),
            ("cdpo", "believes every label; cdpo has its minimum where the implied probability is 1 - e."),
        ),
        "with hard labels and without smoothing the minimum lies at h = infinity: given time, rejected answers are "
        "driven out of the distribution, whatever that does to the chosen ones.",
        "kl/chosen, by how many nats the better answers became less likely: small is healthy, a steady rise says stop; "
        "held_out/loss, which turns up long before held_out/accuracy turns down.",
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
            ("dpo", "subtracts what flipped pairs would add, so single pairs may have a negative loss."),
        ),
        "with flips = 0 it would be dpo; near one half the correction divides by nothing and multiplies the noise.",
        "loss below 0 is normal; the margin grows faster than dpo's, so look at kl/chosen sooner.",
    ),
    "Ipo": Words(
        "Identity Preference Optimization",
        "Azar et al. 2023, arXiv 2310.12036",
        ("ipo",),
        "loss = (h - 1/(2 beta))^2      with h per token where per_token = true",
        (
            (
                "dpo",
                "a finite target for the margin, however sure the label: certainty cannot buy more distance.",
            ),
            ("hinge", "a pair beyond the target is pulled back."),
        ),
        "with labels of one half both orders pull, and the minimum is h = 0: the reference itself.",
        "margin, which should settle near 1/2 (beta times its target); a large beta asks for hardly any.",
    ),
    "Hinge": Words(
        "Hinge loss on log-ratios",
        "Liu et al. 2023, arXiv 2309.06657 (RSO)",
        ("hinge",),
        "loss = max(0, 1 - beta h)",
        (
            ("dpo", "a pair that is told apart by 1/beta nats is left alone."),
            ("slic", "measures against the reference."),
        ),
        "once all margins are beyond 1/beta the gradient is exactly 0.",
        "loss, the share of pairs still at work times their distance; accuracy stops growing before it is 0.",
    ),
    "Slic": Words(
        "Sequence Likelihood Calibration",
        "Zhao et al. 2023, arXiv 2305.10425 (SLiC-HF)",
        ("slic",),
        "loss = max(0, delta - [log pi(chosen) - log pi(rejected)]) - imitation * log pi(chosen) / length",
        (
            ("hinge", "no reference: what holds the policy is imitation of the better answers."),
            ("orpo", "a margin in nats of whole answers, so long answers count more."),
        ),
        "with imitation = 0 nothing keeps the policy from making both answers unlikely.",
        "kl/chosen, which imitation should keep below 0: the better answers become likelier.",
    ),
    "Kto": Words(
        "Kahneman-Tversky Optimization",
        "Ethayarajh et al. 2024, arXiv 2402.01306",
        ("kto",),
        "loss = desirable   * (1 - s(beta (log-ratio - z)))    of a good answer\n"
        "       undesirable * (1 - s(beta (z - log-ratio)))    of a bad one\n"
        "z = max(0, mean log-ratio of answers to other prompts), an estimate of the KL, held constant",
        (
            (
                "dpo",
                "judges answers one by one against z, so it learns from thumbs up and down without pairs (--unpaired).",
            ),
            ("ipo", "saturates on both sides: hopeless and settled answers both stop teaching."),
        ),
        "when all answers are far on one side of z every sigmoid is flat and nothing moves.",
        "the drift z, and the balance of good and bad answers, which desirable and undesirable make up for.",
    ),
    "Orpo": Words(
        "Odds Ratio Preference Optimization",
        "Hong et al. 2024, arXiv 2403.07691",
        ("orpo",),
        "loss = -log pi(chosen) / length - coef * log s(log odds(chosen) - log odds(rejected))\n"
        "odds = p / (1 - p),  p = exp(log pi / length)",
        (
            ("dpo", "no reference and no SFT before: imitation and preference in one loss."),
            ("slic", "odds of the mean token instead of nats of the whole answer, so length does not count."),
        ),
        "for answers of small probability odds and probability are the same, and it is simpo with imitation.",
        "kl/chosen below 0; the first term is most of the loss, so read accuracy, not loss.",
    ),
    "SimPo": Words(
        "Simple Preference Optimization",
        "Meng et al. 2024, arXiv 2405.14734",
        ("simpo",),
        "loss = -log s(beta [log pi(chosen)/length - log pi(rejected)/length - gap])",
        (
            ("dpo", "no reference, and per token: the score of an answer is what sampling would rank it by."),
            ("orpo", "nothing imitates: only differences are trained."),
        ),
        "without a reference nothing limits the distance but beta and the number of steps.",
        "length/mean of fresh samples (tutelage evaluate), and kl/chosen, which nothing holds back.",
    ),
}
