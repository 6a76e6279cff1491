"""RLOO (Ahmadian et al. 2024) on one screen: REINFORCE, and a baseline from the other completions of the same prompt.

The task: count down. The prompt is a number n, and the completion should be n-1, n-2, ..., 0, where 0 ends it. The
score of a completion is its correct share before the first mistake. The policy is a table: the logits of the next
token, given the one before. Run it with `python examples/2_rloo.py`; it takes seconds.

    maximise  mean over completions of  sum over tokens of  log pi(a_t | s_t) Psi
    Psi = R - mean R of the prompt's other G - 1 completions
"""

import torch
from torch import Tensor, nn

from tutelage.core.groups import Group
from tutelage.core.reduce import at_last_token, token_weights

WORDS, LIMIT = 8, 8  # tokens 0 ... 7; tokens of a completion at most
PROMPTS, GROUP, STEPS = 16, 4, 200  # prompts of a step, completions of each


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


def main(steps: int = STEPS) -> list[float]:
    """Train, print the mean score at intervals, and return that of every step."""
    torch.manual_seed(0)
    policy = Policy()
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)
    curve = []
    for step in range(steps):
        prompt = torch.randint(1, WORDS, (PROMPTS,)).repeat_interleave(GROUP)
        response, mask = policy.sample(prompt)
        score = score_of(prompt, response)

        reward = at_last_token(score, mask)
        psi, _ = Group(leave_one_out=True)(reward, mask, None, GROUP)
        weight = token_weights(mask, "sequence_sum")
        objective = (weight * policy(prompt, response) * psi).sum()

        optimiser.zero_grad()
        (-objective).backward()
        optimiser.step()
        curve.append(float(score.mean()))
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step:3}  score {curve[-1]:.2f}")
    return curve


if __name__ == "__main__":
    main()
