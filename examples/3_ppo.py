"""PPO (Schulman et al. 2017) on one screen: a critic, several steps on each rollout, and a clip to hold them together.

The task: count down. The prompt is a number n, and the completion should be n-1, n-2, ..., 0, where 0 ends it. The
score of a completion is its correct share before the first mistake. The policy is a table: the logits of the next
token, given the one before. The critic is a table too: the value of each token before. Run it with `python
examples/3_ppo.py`; it takes seconds.

    maximise  mean over tokens of  min(rho Psi, clip(rho, 1 - 0.2, 1 + 0.2) Psi),  rho = pi / pi_old
    Psi = GAE(lambda) of the rewards and the critic's values, whitened;  the critic fits Psi + V
"""

import torch
from torch import Tensor, nn

from tutelage.core.advantages import Gae
from tutelage.core.reduce import at_last_token, token_weights
from tutelage.core.surrogates import Clipped
from tutelage.core.values import value_loss

WORDS, LIMIT = 8, 8  # tokens 0 ... 7; tokens of a completion at most
PROMPTS, EPOCHS, STEPS = 64, 4, 100  # prompts of a step, one completion each; optimiser steps per rollout


class Policy(nn.Module):
    """A table of logits, token before -> next token, and a table of values."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(WORDS, WORDS))
        self.value = nn.Parameter(torch.zeros(WORDS))

    def forward(self, prompt: Tensor, response: Tensor) -> tuple[Tensor, Tensor]:
        """log pi of each completion token, and the value before it. Int[B], Int[B, R] -> Float[B, R], Float[B, R]"""
        before = torch.cat((prompt[:, None], response[:, :-1]), 1)
        logp = self.table[before].log_softmax(-1).gather(-1, response[:, :, None]).squeeze(-1)
        return logp, self.value[before]

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


def main(steps: int = STEPS) -> list[float]:
    """Train, print the mean score at intervals, and return that of every step."""
    torch.manual_seed(0)
    policy = Policy()
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)
    curve = []
    for step in range(steps):
        prompt = torch.randint(1, WORDS, (PROMPTS,))
        response, mask = policy.sample(prompt)
        score = score_of(prompt, response)

        reward = at_last_token(score, mask)
        with torch.no_grad():
            old_logp, old_value = policy(prompt, response)
        psi, target = Gae(lam=0.95)(reward, mask, old_value, 1)
        weight = token_weights(mask, "token_mean")
        for _ in range(EPOCHS):
            logp, value = policy(prompt, response)
            objective = (weight * Clipped(0.2, 0.2)(logp, old_logp, psi, mask)).sum()
            critic_loss = (weight * value_loss(value, old_value, target, clip=None)).sum()

            optimiser.zero_grad()
            (critic_loss - objective).backward()
            optimiser.step()
        curve.append(float(score.mean()))
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step:3}  score {curve[-1]:.2f}")
    return curve


if __name__ == "__main__":
    main()
