"""What the tests of training share: tiny policies, rows, preferences, prompts and rewards."""

import torch

from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import needs_divergence, needs_entropy
from tutelage.algorithms.recipe_state import initial_state
from tutelage.algorithms.registry import recipe_named
from tutelage.base import config
from tutelage.core.rows import EncodedRow
from tutelage.data.records import Preference, Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rewards.composite import no_reward
from tutelage.rewards.function import FunctionReward
from tutelage.rollout.environment import Environment
from tutelage.rollout.generator import encode_prompts
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.player import Player
from tutelage.train.learner import Learner
from tutelage.train.rl.critic import make_critic
from tutelage.train.rl.improve import improve
from tutelage.train.rl.rollouts import collect
from tutelage.train.rl.setup import RolloutSettings, Setup
from tutelage.train.supervised.batches import EncodedPair, Order

CPU = torch.device("cpu")
PAD = 1
ENDS = range(100, 200)
"""Tokens that end a turn beside the end token."""
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

    return [EncodedRow(ids(9), ids(12)) for _ in range(count)]


def some_pairs(count, seed=0, p_chosen=1.0, margin=0.0):
    """Random preferences with different weights."""
    better, worse = some_rows(count, seed), some_rows(count, seed + 1)
    return [
        EncodedPair(
            a,
            EncodedRow(a.prompt, b.response),
            Preference((), "a", "b", p_chosen=p_chosen, weight=1.0 + i % 3, margin=margin),
        )
        for i, (a, b) in enumerate(zip(better, worse, strict=True))
    ]


def learner_of(groups, steps, lr=1e-3, **settings):
    return Learner(
        groups, config.Optimiser(**{"lr": lr, "eps": config.POLICY_EPS, "schedule": "constant"} | settings), steps
    )


def snapshot(parameters):
    return [p.detach().clone() for p in parameters]


def assert_identical(one, other):
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def assert_close(one, other, atol):
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=atol)


def prompts_of(policy, count=8):
    """Prompts of different lengths, as text and tokens."""
    prompts = [
        Prompt(f"p{i}", user(" ".join(WORDS[(3 * i + j) % len(WORDS)] for j in range(1 + i % 3)))) for i in range(count)
    ]
    return encode_prompts(prompts, policy.tokenizer)


def letters(wanted):
    """A reward: the share of the characters of an answer that are among the wanted ones."""

    def share(prompts, texts):
        return [sum(text.count(letter) for letter in wanted) / max(1, len(text)) for text in texts]

    return FunctionReward(share, f"share of {wanted}")


def recipe_of(*changes, name="ppo"):
    return override(recipe_named(name), changes)


def passes(recipe):
    """What decides the passes of a step through the models: a critic, a reference and what is asked of it, entropy."""
    kl = recipe.penalty and (recipe.penalty.kind, recipe.penalty.where)
    return recipe.critic is not None, kl, needs_entropy(recipe), needs_divergence(recipe)


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
        if policy.passes is None:  # a policy in shards has its reference from the start
            policy.freeze_reference()
        self.generator = LocalGenerator(policy)
        self.critic = make_critic(policy, place, start, seed=seed) if recipe.critic is not None else None
        groups = {"policy": policy.parameters()}
        if self.critic is not None:
            groups["critic"] = self.critic.parameters()
        self.learner = learner_of(groups, steps, lr, **optimiser)
        self.state = None  # of the recipe, after the newest step
        self.settings = RolloutSettings(
            config.Sampling(temperature=temperature, max_new_tokens=tokens),
            Budget(budget),
            seed,
            mismatch=None if policy.dtype == torch.float32 else mismatch,
            mix=mix,
        )
        self.order = Order(prompts_of(policy), batch, seed)
        self.reward = reward or letters("e")

    def train(self):
        for step in improve(
            self.policy,
            self.generator,
            self.order,
            self.reward,
            self.recipe,
            self.learner,
            self.settings,
            critic=self.critic,
            state=self.state,
        ):
            self.state = step.recipe
            yield step

    def setup(self):
        """What the parts of `improve` share."""
        return Setup(self.recipe, self.policy, self.critic, self.learner, self.settings)

    def collected(self, step=0):
        """The answers of a step, and the metrics of sampling."""
        return collect(
            self.generator,
            self.order,
            self.reward,
            self.recipe,
            initial_state(self.recipe),
            self.settings,
            step=step,
            total=self.learner.total,
        )

    def everything(self):
        """All that is being trained, policy first."""
        return snapshot(self.learner.parameters)


class EpisodeWorld(World):
    """A world whose completions are episodes."""

    def __init__(self, policy, recipe, play, **settings):
        policy.end_ids = (*policy.end_ids, *ENDS)
        super().__init__(policy, recipe, reward=no_reward, tokens=5, **settings)
        prompts: dict[str, Prompt] = {encoded.prompt.id: encoded.prompt for encoded in self.order.items}
        self.generator = Player(LocalGenerator(policy), Environment(play, turns=3), prompts, policy, policy.context)
        self.settings = RolloutSettings(self.settings.sampling, self.settings.budget, 0, turns=3)


def gradients_of(policy):
    """The gradients of a policy's parameters, which are cleared."""
    found = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in policy.parameters()]
    policy.model.zero_grad()
    return found
