"""Reward functions of completions that tests name on the command line, as module:function."""


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
