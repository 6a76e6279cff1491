"""The texts of the page: titles and explanations of each kind of stage, and a small dictionary for a first reader."""

from collections.abc import Mapping
from types import MappingProxyType

TITLES: Mapping[str, str] = MappingProxyType(
    {
        "pretrain": "Pretraining",
        "sft": "Supervised fine-tuning",
        "sample": "Sampling",
        "judge": "Judging",
        "reward": "Reward model",
        "improve": "Policy optimisation",
        "distill": "Distillation",
        "evaluate": "Evaluation",
    }
)

STORIES: Mapping[str, str] = MappingProxyType(
    {
        "pretrain": (
            "A model that knows nothing reads plain text and learns to guess the next token, a piece of a word."
            " Nobody tells it what a good answer is; it learns how language goes."
        ),
        "sft": (
            "The model reads questions together with answers written for it, and learns to answer in their"
            " manner. What comes out is the starting point of all that follows; frozen, it is also the reference."
        ),
        "sample": (
            "The fine-tuned model answers each prompt more than once, leaving the choice of words to chance."
            " Pairs of such answers are what raters compare."
        ),
        "judge": (
            "Raters see two answers to the same prompt, side by side in random order, and say which is better."
            " They disagree with each other, and sometimes with themselves; how often they do limits what any"
            " model can learn from them."
        ),
        "reward": (
            "From the judgements a second model learns to give every answer a score, so that the answer which was"
            " preferred scores higher. From here on it stands in for the raters: training needs more opinions than"
            " people can give."
        ),
        "improve": (
            "The model, now called the policy, answers; the reward model scores; answers that scored better than"
            " expected become more likely. A penalty on the distance from the reference, the KL, keeps the"
            " language intact."
        ),
        "distill": (
            "The model, the student, answers; a teacher says at every token what it would have written there, and the"
            " student's probabilities move towards the teacher's. The KL is measured against the teacher."
        ),
        "evaluate": (
            "The models before and after answer prompts that no stage has seen. What counts is not the score,"
            " which was trained for, but what a judge who took no part says."
        ),
    }
)

DICTIONARY: tuple[tuple[str, str], ...] = (
    ("policy", "the model that is being trained to give better answers"),
    ("reference", "the model it started from, frozen; the KL is measured against it"),
    ("score", "the reward model's number for an answer: an imitation of what raters prefer"),
    ("gold", "the true worth of an answer, known only where raters are simulated; training never sees it"),
    ("KL", "how far the policy has moved from the reference, in nats; 0 means not at all"),
    ("held out", "examples kept away from training, to see what was understood rather than memorised"),
    ("win rate", "how often the new answer beats the old one; ties count half, 50% means no difference"),
    ("reward hacking", "raising the score by what the reward model mistakes for quality"),
    ("entropy", "how undecided the model is about its next token"),
    ("ceiling", "the accuracy that a perfect reward model would reach, given how noisy single votes are"),
    ("95% interval", "the range that would hold the true value in 95 of 100 repetitions of the measurement"),
)
