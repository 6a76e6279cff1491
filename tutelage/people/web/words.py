"""Template filters that format numbers, times and codes in the reader's language."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile

from babel.dates import format_skeleton
from babel.numbers import format_decimal
from markupsafe import Markup

from tutelage.people.answers import FLAGS
from tutelage.people.languages import ENGLISH, LANGUAGES, Sentence, catalogue, counted, say
from tutelage.people.web.names import ACTIONS, DETAILS, subject_of
from tutelage.people.web.render import reveal_text

NOUNS: Mapping[str, Callable[[int], Sentence]] = {
    "answer": lambda n: counted("%(count)s answer", "%(count)s answers", count=n),
    "better response": lambda n: counted("%(count)s better response", "%(count)s better responses", count=n),
    "day": lambda n: counted("%(count)s day", "%(count)s days", count=n),
    "demonstration": lambda n: counted("%(count)s demonstration", "%(count)s demonstrations", count=n),
    "export": lambda n: counted("%(count)s export", "%(count)s exports", count=n),
    "item": lambda n: counted("%(count)s item", "%(count)s items", count=n),
    "judgement": lambda n: counted("%(count)s judgement", "%(count)s judgements", count=n),
    "label": lambda n: counted("%(count)s label", "%(count)s labels", count=n),
    "mark": lambda n: counted("%(count)s mark", "%(count)s marks", count=n),
    "marked span": lambda n: counted("%(count)s marked span", "%(count)s marked spans", count=n),
    "message": lambda n: counted("%(count)s message", "%(count)s messages", count=n),
    "more vote": lambda n: counted("%(count)s more vote", "%(count)s more votes", count=n),
    "new item": lambda n: counted("%(count)s new item", "%(count)s new items", count=n),
    "new rater": lambda n: counted("%(count)s new rater", "%(count)s new raters", count=n),
    "new vote": lambda n: counted("%(count)s new vote", "%(count)s new votes", count=n),
    "other word": lambda n: counted("%(count)s other word", "%(count)s other words", count=n),
    "pair": lambda n: counted("%(count)s pair", "%(count)s pairs", count=n),
    "place": lambda n: counted("%(count)s place", "%(count)s places", count=n),
    "preference": lambda n: counted("%(count)s preference", "%(count)s preferences", count=n),
    "rater": lambda n: counted("%(count)s rater", "%(count)s raters", count=n),
    "row": lambda n: counted("%(count)s row", "%(count)s rows", count=n),
    "single response": lambda n: counted("%(count)s single response", "%(count)s single responses", count=n),
    "suggested opening": lambda n: counted("%(count)s suggested opening", "%(count)s suggested openings", count=n),
    "time": lambda n: counted("%(count)s time", "%(count)s times", count=n),
    "turn": lambda n: counted("%(count)s turn", "%(count)s turns", count=n),
    "vote": lambda n: counted("%(count)s vote", "%(count)s votes", count=n),
}
"""Countable nouns, by their name in the templates."""
CODES: Mapping[str, Sentence] = {
    "active": Sentence("active"),
    "added by a program": Sentence("added by a program"),
    "adjudication": Sentence("adjudication"),
    "both_bad": Sentence("both bad"),
    "closed": Sentence("closed"),
    "excluded": Sentence("excluded"),
    "gold": Sentence("known answer"),
    "held_out": Sentence("held out"),
    "imported": Sentence("imported"),
    "live": Sentence("live conversation"),
    "llm": Sentence("model judge"),
    "open": Sentence("open"),
    "owner": Sentence("owner"),
    "paused": Sentence("paused"),
    "random": Sentence("random"),
    "rater": Sentence("rater"),
    "reviewer": Sentence("reviewer"),
    "skip": Sentence("skipped"),
    "simulated": Sentence("simulated"),
    "tie": Sentence("equal"),
    "train": Sentence("for training"),
    "training": Sentence("practice"),
    "unreliable": Sentence("unreliable"),
    "use": Sentence("feedback from use"),
}
"""Readable names of the codes in the tables: states, roles, kinds of raters and items, reasons for assignments."""
_AGO: tuple[tuple[int, Callable[[int], Sentence]], ...] = (
    (86_400, lambda n: counted("%(count)s day ago", "%(count)s days ago", count=n)),
    (3_600, lambda n: counted("%(count)s hour ago", "%(count)s hours ago", count=n)),
    (60, lambda n: counted("%(count)s minute ago", "%(count)s minutes ago", count=n)),
)


def share(value: float | None, digits: int = 0, *, language: str = ENGLISH) -> str:
    """0.726 as 73 %; None as a dash."""
    if value is None:
        return "–"
    return catalogue.percent(value, digits, language)


def number(value: float, *, language: str = ENGLISH) -> str:
    """12345 as 12,345."""
    return catalogue.number(value, language)


def decimal(value: float, digits: int = 2, *, language: str = ENGLISH, sign: bool = False) -> str:
    """0.7264 as 0.73."""
    places = "0." + "0" * digits
    pattern = f"+{places};-{places}" if sign else places
    return format_decimal(value, pattern, locale=LANGUAGES[language].locale, numbering_system="latn")


def amount(value: float, *, language: str = ENGLISH) -> str:
    """1234.5 as 1,234.50."""
    return format_decimal(value, "#,##0.00", locale=LANGUAGES[language].locale, numbering_system="latn")


def chance(probability: float, *, language: str = ENGLISH) -> str:
    """A p-value in words: 0.00004 as p < 0.001."""
    least = decimal(max(probability, 0.001), 3, language=language)
    return f"p {'<' if probability < 0.001 else '='} {least}"


def seconds(milliseconds: float | None, *, language: str = ENGLISH) -> str:
    """92000 as 1 min 32 s."""
    if milliseconds is None:
        return "–"
    whole = round(milliseconds / 1000)
    if whole < 60:
        return say(Sentence("%(seconds)s s", seconds=whole), language)
    return say(Sentence("%(minutes)s min %(seconds)s s", minutes=whole // 60, seconds=whole % 60), language)


def moment(milliseconds: int | None, *, language: str = ENGLISH) -> str:
    """A time in UTC, to the minute."""
    if milliseconds is None:
        return "–"
    when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    if language == ENGLISH:  # readers of English write dates in two orders
        return when.strftime("%Y-%m-%d %H:%M")
    day = format_skeleton("yMd", when, locale=LANGUAGES[language].locale)
    return f"{day} {when:%H:%M}"


def ago(milliseconds: int | None, now: int, *, language: str = ENGLISH) -> str:
    """The elapsed time since a moment, in words."""
    if milliseconds is None:
        return say(Sentence("never"), language)
    passed = max(0, now - milliseconds) // 1000
    for size, phrase in _AGO:
        if passed >= size:
            return say(phrase(passed // size), language)
    return say(Sentence("just now"), language)


def plural(count: int, one: str, *, language: str = ENGLISH) -> str:
    """A count with its noun from `NOUNS`: 1 vote, 2 votes."""
    return say(NOUNS[one](count), language)


def coded(name: str, *, language: str = ENGLISH) -> str:
    """The readable name of a code; a code without one is shown with spaces, both_bad as both bad."""
    return say(CODES.get(name, spaced(name)), language)


def done(name: str, *, language: str = ENGLISH) -> str:
    """The readable name of an action in the history."""
    return say(ACTIONS.get(name, spaced(name)), language)


def about(subject: str, *, language: str = ENGLISH) -> str:
    """The subject of an event in the history, in words."""
    return say(subject_of(subject), language)


def detailed(detail: Mapping[str, object], *, language: str = ENGLISH) -> str:
    """The details of an event in words, without empty ones."""
    entries = {name: _value(value, language) for name, value in detail.items() if value not in (None, "")}
    return ", ".join(f"{say(DETAILS.get(name, spaced(name)), language)} {value}" for name, value in entries.items())


def _value(value: object, language: str) -> str:
    """A value of a detail: codes by their readable names, other values unchanged."""
    if isinstance(value, Mapping):
        return f"({detailed(value, language=language)})"
    if isinstance(value, list):
        return ", ".join(_value(each, language) for each in value)
    if isinstance(value, bool):
        return say(Sentence("yes") if value else Sentence("no"), language)
    return say(CODES.get(value, value), language) if isinstance(value, str) else str(value)


def flagged(name: str, *, language: str = ENGLISH) -> str:
    """The readable name of a rater's flag."""
    return say(FLAGS.get(name, spaced(name)), language)


def spaced(name: str) -> str:
    """both_bad as both bad."""
    return name.replace("_", " ")


EXCERPT = 90
"""Characters of a response in the row of its item."""


def excerpts(texts: Sequence[str]) -> tuple[str, ...]:
    """The first characters of each text, or those from the word on in which the texts differ if that is further on."""
    lines = [" ".join(text[: 20 * EXCERPT].split()) for text in texts]
    common = "".join(same[0] for same in takewhile(lambda each: len(set(each)) == 1, zip(*lines, strict=False)))
    begin = common.rfind(" ") + 1 if EXCERPT // 2 < len(common) < max(map(len, lines)) else 0
    return tuple(_excerpt(line, begin) for line in lines)


def _excerpt(line: str, begin: int) -> str:
    return ("…" if begin else "") + line[begin : begin + EXCERPT] + ("…" if begin + EXCERPT < len(line) else "")


def filters(language: str) -> dict[str, Callable[..., object]]:
    """The template filters for a language."""
    translated: dict[str, Callable[..., str]] = {
        "share": share,
        "number": number,
        "decimal": decimal,
        "amount": amount,
        "chance": chance,
        "seconds": seconds,
        "moment": moment,
        "ago": ago,
        "plural": plural,
        "code": coded,
        "action": done,
        "about": about,
        "detailed": detailed,
        "flag": flagged,
    }
    spoken = {name: partial(each, language=language) for name, each in translated.items()}
    return {**spoken, "spaced": spaced, "excerpts": excerpts, "reveal": lambda text: Markup(reveal_text(text))}
