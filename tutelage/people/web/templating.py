"""The language of a page (the rater's choice, the browser's preference, the languages of the study), and Jinja
environments per language, with translations, filters that format numbers, times and codes, and charts of shares,
strengths and agreement with their intervals.

Templates and redirects are written for a site at the root. `Rooted` adds the prefix to the addresses of a template when
it is loaded, `rooted` to a redirect; scripts derive it from their own address.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from urllib.parse import quote

import jinja2
from babel.dates import format_skeleton
from babel.numbers import format_decimal
from jinja2.ext import Extension
from markupsafe import Markup
from starlette.requests import Request

from tutelage.base.version import __version__
from tutelage.people.answers import FLAGS
from tutelage.people.kinds import KINDS
from tutelage.people.languages import ENGLISH, LANGUAGES, Sentence, catalogue, counted, say
from tutelage.people.web.names import ACTIONS, DETAILS, subject_of
from tutelage.people.web.render import render, reveal_text
from tutelage.report.figures import Rule, Svg, ValueBar, interval_scale, interval_strip
from tutelage.stats.intervals import Interval

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


REFERENCES = ((0.63, "hh-rlhf"), (0.726, "InstructGPT"), (0.81, "MT-bench"))
"""Published agreement between raters of preference data, for comparison."""


def agreement_scale(interval: Interval, language: str, *, narrow: bool = False) -> Svg:
    """Rater agreement from 0.5 to 1 with its interval, next to published values."""
    percent = partial(share, language=language)
    published = ", ".join(f"{name} {percent(value, 1)}" for value, name in REFERENCES)
    title = Sentence(
        "Agreement %(share)s; published: %(published)s", share=percent(interval.value, 1), published=published
    )
    title = Sentence("Agreement is not known yet") if interval.value is None else title
    bar = _bar(interval, say(title, language))
    rules = [Rule(value, f"{name} {percent(value, 1)}", "x") for value, name in REFERENCES]
    return interval_scale(bar, 0.5, 1.0, rules, percent, width=290 if narrow else 640, narrow=narrow)


def share_interval(interval: Interval, name: str, *, middle: float | None = 0.5) -> Svg:
    """A share from 0 to 1 with its interval, and a line at the neutral value `middle`."""
    return interval_strip(_bar(interval, name), 0.0, 1.0, rule=middle, width=112)


def strength_interval(interval: Interval, reach: float) -> Svg:
    """A strength with its interval on a scale from -`reach` to `reach`."""
    name = "Strength is not known yet" if interval.value is None else f"{interval.value:+.2f}"
    return interval_strip(_bar(interval, name), -reach, reach, rule=0.0, width=172)


def _bar(interval: Interval, name: str) -> ValueBar:
    return ValueBar(name, math.nan if interval.value is None else interval.value, low=interval.low, high=interval.high)


def filters(language: str) -> dict[str, Callable[..., object]]:
    """The template filters for a language."""
    translated: dict[str, Callable[..., str]] = {
        "share": share,
        "number": catalogue.number,
        "date": catalogue.date,
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
        "question": _question,
        "say": say,
        "markdown": render,
    }
    spoken = {name: partial(each, language=language) for name, each in translated.items()}
    return {**spoken, "spaced": spaced, "excerpts": excerpts, "reveal": lambda text: Markup(reveal_text(text))}


COOKIE = "tutelage_language"
_YEAR = 365 * 86_400
TEMPLATES = Path(__file__).parent / "templates"
_FIXED = re.compile(r'\b(href|src|action|formaction)="/(?!/)')
_COMPUTED = re.compile(r'\b(href|src|action|formaction)="\{\{ ([^{}]+?) \}\}')


class Rooted(Extension):
    """Jinja extension that prefixes addresses: `href="/owner"` becomes `href="{{ root }}/owner"`, and expressions pass
    through the filter `rooted`. `root` is a global of the environment."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        environment.globals["root"] = ""
        environment.filters["rooted"] = lambda address: rooted(str(environment.globals["root"]), str(address))

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        source = _COMPUTED.sub(r'\1="{{ (\2) | rooted }}', source)
        return _FIXED.sub(r'\1="{{ root }}/', source)


def rooted(root: str, address: str) -> str:
    """The address below the root if it belongs to this site, otherwise unchanged."""
    return root + address if address.startswith("/") and not address.startswith("//") else address


@cache
def templates(language: str, root: str = "") -> jinja2.Environment:
    """The environment for a language and the root of a site; cached."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n", Rooted],
    )
    environment.policies["ext.i18n.trimmed"] = True
    words = catalogue.translations(language)
    environment.install_gettext_callables(words.gettext, words.ngettext, newstyle=True)  # type: ignore[attr-defined]  # of the extension
    environment.filters.update(filters(language))
    environment.globals |= {"version": __version__, "root": root, "mailto": _mailto, "language": LANGUAGES[language]}
    charts: tuple[Callable[..., object], ...] = (share_interval, strength_interval, Interval)
    environment.globals |= {each.__name__: each for each in charts}
    script_json = json.dumps(catalogue.script_words(language), ensure_ascii=False)
    environment.globals["script_words"] = Markup(script_json.replace("<", "\\u003c"))  # safe inside a script element
    return environment


def _question(text: str, language: str) -> str:
    """The question of a study: translated if it is a standard one, an owner's own unchanged."""
    standard = {str(kind.traits.question): kind.traits.question for kind in KINDS.values()}
    return say(standard.get(text, text), language)


def _mailto(subject: str, *paragraphs: str) -> str:
    """A mailto address with subject and body, percent-encoded with CR LF line ends (RFC 6068)."""
    text = "".join(f"{quote(line, safe='')}%0D%0A" for line in "\n\n".join(paragraphs).split("\n"))
    return f"mailto:?subject={quote(subject, safe='')}&body={text}"


def wanted_languages(request: Request) -> tuple[str, ...]:
    """The preferred languages of the client, best first: the saved choice, then Accept-Language."""
    own = request.cookies.get(COOKIE, "")
    return tuple(filter(LANGUAGES.__contains__, (own, *accepted(request.headers.get("accept-language", "")))))


def accepted(header: str) -> Iterable[str]:
    """The languages of an Accept-Language header without regions, best first: "de-CH, en;q=0.5" gives de, en."""
    ranges = []
    for place, part in enumerate(header[:500].split(",")):
        tag, _, quality = part.partition(";")
        try:
            weight = float(quality.partition("=")[2]) if quality else 1.0
        except ValueError:
            weight = 0.0
        if weight > 0:
            ranges.append((-weight, place, tag.strip().lower().partition("-")[0]))
    return [code for _, _, code in sorted(ranges)]


def language_cookie(code: str, *, secure: bool) -> str:
    """The value of a Set-Cookie header that remembers the choice."""
    return f"{COOKIE}={code}; Path=/; Max-Age={_YEAR}; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}"
