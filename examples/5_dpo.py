"""DPO (Rafailov et al. 2023) on one screen: no rollouts, only pairs of completions of which one is better.

The task: count down. The prompt is a number n, and the completion should be n-1, n-2, ..., 0, where 0 ends it. The
score of a completion is its correct share before the first mistake. The policy is a table: the logits of the next
token, given the one before. Of two completions of the reference, the one of higher score is chosen. Run it with
`python examples/5_dpo.py`; it takes seconds.

    minimise  mean over pairs of  - log sigmoid(beta (h(chosen) - h(rejected))),  h = log pi - log pi_ref
"""

import torch
from torch import Tensor, nn

from tutelage.core.preferences import AnswerPairs, Answers, Dpo

WORDS, LIMIT = 8, 8  # tokens 0 ... 7; tokens of a completion at most
PAIRS, STEPS = 256, 200  # pairs of a step


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


def side(policy: Policy, reference: Policy, prompt: Tensor, response: Tensor, mask: Tensor) -> Answers:
    """One completion of each pair: the log-probabilities of whole completions, under the policy and the reference."""
    with torch.no_grad():
        ref_logp = (reference(prompt, response) * mask).sum(1)
    logp = (policy(prompt, response) * mask).sum(1)
    return Answers(logp=logp, ref_logp=ref_logp, length=mask.sum(1))


def main(steps: int = STEPS) -> list[float]:
    """Train, print the mean score at intervals, and return that of every step."""
    torch.manual_seed(0)
    policy, reference = Policy(), Policy()
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)
    curve = []
    for step in range(steps):
        prompt = torch.randint(1, WORDS, (PAIRS,))
        samples = reference.sample(prompt), reference.sample(prompt)
        response, mask = (torch.stack(parts) for parts in zip(*samples, strict=True))
        score = torch.stack([score_of(prompt, answers) for answers in response])

        pair = (score[0] != score[1]).nonzero().squeeze(1)  # ties are dropped
        best = score[:, pair].argmax(0)
        pairs = AnswerPairs(
            chosen=side(policy, reference, prompt[pair], response[best, pair], mask[best, pair]),
            rejected=side(policy, reference, prompt[pair], response[1 - best, pair], mask[1 - best, pair]),
        )
        loss = Dpo(beta=0.02)(pairs).mean()

        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        curve.append(float(score_of(prompt, policy.sample(prompt)[0]).mean()))
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step:3}  score {curve[-1]:.2f}")
    return curve


if __name__ == "__main__":
    main()
