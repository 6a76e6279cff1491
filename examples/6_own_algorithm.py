"""An algorithm of your own: REINFORCE with a stateful baseline; everything else comes from the template.

The baseline is an exponential mean of the scores of each prompt, so that easy and hard prompts have baselines of
their own, with one completion each. The task is that of `1_reinforce.py`: count down from the prompt to 0. Run it
with `python examples/6_own_algorithm.py`; the recipe also runs on language models, from the folder of this file, with
`tutelage improve --recipe 6_own_algorithm:PROMPT_BASELINE`.

    maximise  mean over completions of  sum over tokens of  log pi(a_t | s_t) (R - b)
    b = mean of earlier R of the same prompt, decaying by `decay` from one to the next; 0 for a prompt not seen before
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tutelage.algorithms.recipe import Observation, Recipe, kl_reference, objective, prepare
from tutelage.algorithms.recipe_state import after_update, initial_state
from tutelage.core.advantages import TotalReturn
from tutelage.core.batch import ScoredRollout
from tutelage.core.pieces import Context
from tutelage.core.reduce import token_weights
from tutelage.core.shaping import ScoreShaping


@dataclass(frozen=True)
class PromptMean:
    """b = exponential mean of the earlier returns of the row's prompt."""

    decay: float = 0.8

    def init(self) -> dict[str, float]:
        """The state before any prompt."""
        return {}

    def __call__(
        self, returns: Tensor, mask: Tensor, context: Context, state: dict[str, float]
    ) -> tuple[Tensor, dict[str, float]]:
        baseline = returns.new_tensor([state.get(name, 0.0) for name in context.ids])
        after = dict(state)
        for name, total in zip(context.ids, returns[:, 0].tolist(), strict=True):
            after[name] = self.decay * after[name] + (1 - self.decay) * total if name in after else total
        return baseline[:, None].expand_as(returns), after


PROMPT_BASELINE = Recipe(
    name="prompt_baseline",
    shaping=ScoreShaping(missing_end=None),
    penalty=None,
    advantage=TotalReturn(PromptMean(decay=0.8)),
    reduce="sequence_sum",
)

WORDS, LIMIT = 8, 8  # tokens 0 ... 7; tokens of a completion at most
PROMPTS, STEPS = 64, 200  # prompts of a step, one completion of each


class Policy(nn.Module):
    """A table of logits: token before -> next token."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(WORDS, WORDS))

    def forward(self, prompt: Tensor, response: Tensor) -> Tensor:
        """log pi of each completion token. Int[B], Int[B, R] -> Float[B, R]"""
        before = torch.cat((prompt[:, None], response[:, :-1]), 1)
        return self.table[before].log_softmax(-1).gather(-1, response[:, :, None]).squeeze(-1)

    @torch.no_grad()
    def sample(self, prompt: Tensor) -> tuple[Tensor, Tensor]:
        """A completion of each prompt, and the mask of its tokens. Int[B] -> Int[B, R], Bool[B, R]"""
        tokens = [prompt]
        for _ in range(LIMIT):
            tokens.append(torch.multinomial(self.table[tokens[-1]].softmax(-1), 1).squeeze(1))
        response = torch.stack(tokens[1:], 1)
        ended_before = (response == 0).cumsum(1) - (response == 0).long()
        return response, ended_before == 0


def score_of(prompt: Tensor, response: Tensor) -> Tensor:
    """Correct share of the countdown before the first mistake. Int[B], Int[B, R] -> Float[B]"""
    wanted = prompt[:, None] - 1 - torch.arange(LIMIT)
    right = (response == wanted) & (wanted >= 0)
    return right.long().cumprod(1).sum(1) / prompt


def rollout(policy: Policy) -> ScoredRollout:
    """Completions of the policy with their scores; the reference is the policy itself."""
    prompt = torch.randint(1, WORDS, (PROMPTS,))
    response, mask = policy.sample(prompt)
    ended = (response * mask == 0).any(1)
    with torch.no_grad():
        logp = policy(prompt, response) * mask
    return ScoredRollout(
        prompt=prompt[:, None],
        prompt_mask=torch.ones(PROMPTS, 1, dtype=torch.bool),
        response=response,
        mask=mask,
        logp=logp,
        terminated=ended,
        truncated=~ended,
        group=1,
        ids=tuple(str(n) for n in prompt.tolist()),
        score=score_of(prompt, response),
        ref_logp=logp,
    )


def main(steps: int = STEPS, recipe: Recipe = PROMPT_BASELINE) -> list[float]:
    """Train, print the mean score at intervals, and return that of every step."""
    torch.manual_seed(0)
    policy, state = Policy(), initial_state(recipe)
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)
    curve = []
    for step in range(steps):
        batch, state, metrics = prepare(recipe, rollout(policy), state, max_length=LIMIT)
        weight = token_weights(batch.mask, recipe.reduce, LIMIT)
        logp = policy(batch.prompt[:, 0], batch.response)
        value = objective(recipe, batch, logp, None, weight, state)

        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
        observation = Observation(kl_reference=float(kl_reference(batch)), kl_old=0.0, rows=len(batch))
        state = after_update(recipe, state, observation)
        curve.append(float(metrics["score/mean"]))
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step:3}  score {curve[-1]:.2f}  advantage/std {float(metrics['advantage/std']):.2f}")
    return curve


if __name__ == "__main__":
    main()
