"""Rewards that both sides can be given."""

LETTER = "o"


def letters(prompts: list[str], completions: list[str]) -> list[float]:
    """How often the letter stands in the prompt and the completion together, over 64."""
    return [(p.count(LETTER) + c.count(LETTER)) / 64 for p, c in zip(prompts, completions, strict=True)]


def brevity(prompts: list[str], completions: list[str]) -> list[float]:
    """2 less the characters of the prompt and the completion together, over 256: what a model learns that ends its
    answers earlier."""
    return [2 - (len(p) + len(c)) / 256 for p, c in zip(prompts, completions, strict=True)]
