"""Numbers with the nouns that they count, as messages in English say them."""


def counted(count: int, thing: str) -> str:
    """A number of things with its noun: 1 vote, 1,200 votes. `thing` is a singular whose plural ends in s."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
