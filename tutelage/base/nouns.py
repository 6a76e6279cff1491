"""Counts with English nouns and verbs."""

_IRREGULAR = {"person": "people", "child": "children", "criterion": "criteria"}
_VERBS = {"is": "are", "was": "were", "has": "have", "does": "do"}


def counted(count: int, thing: str, verb: str = "") -> str:
    """Return a count with its noun and verb: 1 vote, 1,200 votes; 1 vote has, 2 votes have.

    `thing` is the singular noun, `verb` the verb in the third person singular: is, has, lacks.
    """
    noun = thing if count == 1 else _plural(thing)
    does = verb if count == 1 else _VERBS.get(verb, verb.removesuffix("s"))
    return f"{count:,} {noun} {does}".rstrip()


def _plural(thing: str) -> str:
    """Return the plural of a noun, which may have words before it: new votes, batches, entries, people."""
    before, _, noun = thing.rpartition(" ")
    if noun in _IRREGULAR:
        noun = _IRREGULAR[noun]
    elif noun.endswith(("ch", "sh", "s", "x")):
        noun += "es"
    elif noun.endswith("y") and noun[-2:-1] not in "aeiou":
        noun = f"{noun[:-1]}ies"
    else:
        noun += "s"
    return f"{before} {noun}".lstrip()
