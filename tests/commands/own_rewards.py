"""Reward functions of completions that tests name on the command line, as module:function."""

import numpy as np
import torch


def worth(row, messages, answer):
    """What a row's answer is worth: it takes the system message, an earlier turn, a column and the answer."""
    system, first, *_ = messages
    return len(system) + 100 * len(first) + 10_000 * row["level"] + len(answer) / 1024


def talk(completions):
    """`worth` of every completion."""
    scores = []
    for one in completions:
        assert [turn.role for turn in one.messages] == ["system", "user", "assistant", "user"]
        scores.append(worth(one.data, [turn.content for turn in one.messages], one.answer))
    return scores


def three(prompts, answers, scores):
    """Takes what no reward function is given."""
    return scores


def without_its_column(completions):
    """Reads a column that no row has, as people's functions do."""
    return [len(one.data["topic"]) for one in completions]


def _even(completions):
    return [len(one.answer) % 2 == 0 for one in completions]


def tensor(completions):
    """A tensor of whole numbers."""
    return torch.tensor(_even(completions)).long()


def tensor_with_gradient(completions):
    """A tensor that remembers its gradient, as a network returns it."""
    return torch.tensor(_even(completions), dtype=torch.float64, requires_grad=True) * 1.0


def numpy_booleans(completions):
    """A list of NumPy's booleans, as comparisons of arrays give them."""
    return [np.bool_(value) for value in _even(completions)]


def array_of_booleans(completions):
    """An array of booleans."""
    return np.array(_even(completions))
