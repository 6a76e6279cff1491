"""What the tests of training share: tiny policies, rows, preferences, prompts and rewards."""

import torch

from tutelage import config
from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import initial_state
from tutelage.algorithms.registry import recipe_named
from tutelage.core.rows import Encoded
from tutelage.data.chat import encode
from tutelage.data.records import Preference, Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rewards.function import FunctionReward
from tutelage.train.learner import Learner
from tutelage.train.rl.actor import Actor
from tutelage.train.rl.improve import Progress, Question, Rules, improve
from tutelage.train.supervised.batches import EncodedPair, Order

CPU = torch.device("cpu")
PAD = 1
WORDS = [
    "sun",
    "star",
    "rain",
    "cloud",
    "light",
    "water",
    "plant",
    "sugar",
    "blue",
    "red",
    "hot",
    "far",
    "air",
    "sky",
    "child",
    "gravity",
]


def policy_of(folder, rank=0, **more):
    """The policy of a folder, to be trained."""
    return Policy(load_backbone(config.Model(folder, device="cpu", **more), config.Lora(rank=rank)))


def some_rows(count, seed=0):
    """Random prompts and responses of different lengths."""
    generator = torch.Generator().manual_seed(seed)

    def ids(longest):
        size = int(torch.randint(1, longest + 1, (1,), generator=generator))
        return tuple(torch.randint(10, 299, (size,), generator=generator).tolist())

    return [Encoded(ids(9), ids(12)) for _ in range(count)]


def some_pairs(count, seed=0, p_chosen=1.0, margin=0.0):
    """Random preferences with different weights."""
    better, worse = some_rows(count, seed), some_rows(count, seed + 1)
    return [
        EncodedPair(
            a,
            Encoded(a.prompt, b.response),
            Preference((), "a", "b", p_chosen=p_chosen, weight=1.0 + i % 3, margin=margin),
        )
        for i, (a, b) in enumerate(zip(better, worse, strict=True))
    ]


def learner_of(groups, steps, lr=1e-3, **settings):
    return Learner(
        groups,
        config.Optimiser(**{"lr": lr, "eps": config.POLICY_EPS, "schedule": "constant"} | settings),
        steps,
    )


def snapshot(parameters):
    return [p.detach().clone() for p in parameters]


def assert_identical(one, other):
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def assert_close(one, other, atol):
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=atol)


def questions_of(policy, count=8):
    """Prompts of different lengths, as text and tokens."""
    prompts = [
        Prompt(f"p{i}", user(" ".join(WORDS[(3 * i + j) % len(WORDS)] for j in range(1 + i % 3))))
        for i in range(count)
    ]
    return [Question(p, tuple(encode(p.messages, None, policy.tokenizer)[0])) for p in prompts]


def letters(wanted):
    """A reward: the share of the characters of an answer that are among the wanted ones."""

    def share(prompts, texts):
        return [sum(text.count(letter) for letter in wanted) / max(1, len(text)) for text in texts]

    return FunctionReward(share, f"share of {wanted}")


def recipe_of(*changes, name="ppo"):
    return override(recipe_named(name), changes)


class World:
    """A policy with everything around it that `improve` needs. `train()` yields steps."""

    def __init__(
        self,
        policy,
        recipe,
        *,
        reward=None,
        steps=3,
        lr=1e-3,
        budget=100_000,
        place="trunk",
        start=None,
        batch=8,
        tokens=8,
        seed=0,
        mix=None,
        temperature=1.0,
        mismatch="recompute",
        **optimiser,
    ):
        self.policy, self.recipe = policy, recipe
        policy.freeze_reference()
        self.actor = Actor(policy)
        if recipe.critic is not None:
            self.actor = Actor.with_critic(policy, place, start, seed=seed)
        groups = {"policy": policy.parameters()}
        if self.actor.critic_parameters():
            groups["critic"] = self.actor.critic_parameters()
        self.learner = learner_of(groups, steps, lr, **optimiser)
        self.progress = Progress(initial_state(recipe))
        self.rules = Rules(
            config.Sampling(temperature=temperature, max_new_tokens=tokens),
            budget,
            seed,
            mismatch=None if policy.dtype == torch.float32 else mismatch,
        )
        self.order = Order(questions_of(policy), batch, seed)
        self.reward = reward or letters("e")
        self.mix = mix

    def train(self):
        return improve(
            self.actor,
            self.learner,
            self.order,
            self.reward,
            self.recipe,
            self.rules,
            self.progress,
            self.mix,
        )

    def everything(self):
        """All that is being trained, policy first."""
        return snapshot(self.learner.parameters)


def gradients_of(policy):
    """The gradients of a policy's parameters, which are cleared."""
    found = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in policy.parameters()]
    policy.model.zero_grad()
    return found
