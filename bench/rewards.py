"""A reward that both sides can be given and that can be learnt."""

LETTER = "o"


def letters(prompts: list[str], completions: list[str]) -> list[float]:
    """How often the letter stands in the prompt and the completion together, over 64."""
    return [(p.count(LETTER) + c.count(LETTER)) / 64 for p, c in zip(prompts, completions, strict=True)]
