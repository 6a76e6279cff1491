"""Text of models: what it may look like, and that it can do nothing."""

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.people.web.render import LONGEST, plain, render, sanitise, to_mathml

TAGS = {
    "p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "hr", "br", "div", "table", "thead", "tbody",
    "tr", "th", "td", "em", "strong", "s", "code", "a", "span", "sup", "sub", "math", "mrow", "mi", "mn", "mo", "mtext",
    "ms", "mspace", "msup", "msub", "msubsup", "mfrac", "msqrt", "mroot", "mover", "munder", "munderover",
    "mmultiscripts", "mtable", "mtr", "mtd", "mstyle", "mpadded", "mphantom", "menclose",
}  # fmt: skip
HARMLESS = {
    "title", "start", "display", "stretchy", "fence", "form", "accent", "mathvariant", "accentunder", "linethickness",
    "displaystyle", "scriptlevel", "columnalign", "tabindex",
}  # fmt: skip


class Reader(HTMLParser):
    """What is in a piece of HTML, as a browser would see it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def assert_harmless(html: str) -> Reader:
    """Only elements that show text, and no attribute that loads, runs, styles or names anything."""
    found = Reader(html)
    assert set(found.tags) <= TAGS
    for tag, name, value in found.attributes:
        if name == "href":
            assert tag == "a"
            assert value.startswith(("http://", "https://", "mailto:"))
        elif name == "rel":
            assert set(value.split()) == {"noopener", "noreferrer", "nofollow"}
        elif name == "target":
            assert value == "_blank"
        elif name == "class":
            assert all(each.startswith("t-") or each in ("code", "plain", "not-shown") for each in value.split())
        else:
            assert name in HARMLESS, f"<{tag} {name}={value!r}>"
    assert "<!--" not in html
    return found


PROBES = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<form action='https://evil.test'><input name=csrf><button>Go</button></form>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java&#x73;cript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:msgbox)",
    "[x](/owner/exclusions)",
    "[x](//evil.test/beacon)",
    "[x](file:///etc/passwd)",
    "[x]: javascript:alert(1)\n\n[x]",
    "<javascript:alert(1)>",
    "![](https://evil.test/beacon.png)",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    '![x](x "onerror=alert(1)")',
    "![x][1]\n\n[1]: https://evil.test/beacon.png",
    '[x](https://ok.test "\\" onmouseover=alert(1) x=\\"")',
    "<style>body{background:url(https://evil.test)}</style>",
    "<link rel=stylesheet href=https://evil.test>",
    "<meta http-equiv=refresh content='0;url=https://evil.test'>",
    "<base href=https://evil.test>",
    "<object data=https://evil.test></object><embed src=x>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "<math href=javascript:alert(1)>x</math>",
    "$\\text{<img src=x onerror=alert(1)>}$",
    "$\\text{</math><script>alert(1)</script>}$",
    "$$\\mbox{<svg/onload=alert(1)>}$$",
    "$\\href{javascript:alert(1)}{x}$",
    "$\\class{bar}{x}$",
    "$\\style{position:fixed;inset:0}{x}$",
    "$\\color{red;background:url(https://evil.test)}{x}$",
    "$\\unicode{x3c}script\\unicode{x3e}$",
    "\\(\\text{<img src=x onerror=alert(1)>}\\)",
    "\\[\\text{<img src=x onerror=alert(1)>}\\]",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "```python\" onload=\"alert(1)\nprint('<img src=x onerror=alert(1)>')\n```",
    "`<img src=x onerror=alert(1)>`",
    "~~~ js onclick=alert(1)\nalert('</code></pre><script>alert(1)</script>')\n~~~",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<<script>alert(1)//<</script>",
    "<ScRiPt\n>alert(1)</sCrIpT>",
    "<p id=screen class=primary style='position:fixed'>x</p>",
    "| <script>alert(1)</script> | [x](javascript:1) |\n|-|-|\n| ![](https://evil.test) | $\\text{<b>}$ |",
    "\x00<script>alert(1)</script>",
    "\u202e<script>alert(1)</script>\u202c",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<details open ontoggle=alert(1)>x</details>",
    "<a href=https://ok.test target=_self onclick=alert(1)>x</a>",
]


@for_each(PROBES)
def test_a_hostile_text_is_harmless(probe: str) -> None:
    html = render(probe)
    found = assert_harmless(html)
    assert "script" not in found.tags
    assert not [value for _, name, value in found.attributes if name != "class" and "evil" in value]


@for_each([probe for probe in PROBES if probe.startswith("<") and "\n>" not in probe])
def test_markup_in_a_text_is_shown_as_it_was_written(probe: str) -> None:
    """A rater has to see that a model wrote a tag: it must not vanish."""
    shown = Reader(render(probe)).text
    assert shown.replace("\n", "").strip() == probe.replace("\n", "").strip().replace("&gt;", ">").replace("&lt;", "<")


@given(st.text(max_size=300))
def test_any_text_is_harmless(text: str) -> None:
    assert_harmless(render(text))


PIECES = [*"[]()<>!*_`~$\\{}|#-&;:/'= \n\tax1", '"', "script", "onerror=", "\\text{", "$$", "```", "http://"]


@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_mixture_of_marks_is_harmless(parts: list[str]) -> None:
    assert_harmless(render("".join(parts)))


@given(st.text(max_size=200))
def test_a_plain_text_keeps_every_character(text: str) -> None:
    shown = Reader(plain(text)).text
    assert shown.replace("\r\n", "\n") == text.replace("\r\n", "\n")  # browsers take both for one line end


@given(st.lists(st.text(st.characters(categories=["L"]), min_size=1, max_size=12), min_size=1, max_size=20))
def test_words_are_kept_in_order(words: list[str]) -> None:
    assert Reader(render(" ".join(words))).text.split() == words


def test_markdown_is_formatted() -> None:
    html = render(
        "# Title\n\nA *word* and **two**\nnext line\n\n1. one\n2. two\n\n> said\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    for piece in ("<h3>Title</h3>", "<em>word</em>", "<strong>two</strong><br>", "<ol>", "<blockquote>", "<td>2</td>"):
        assert piece in html


def test_headings_stay_below_those_of_the_page() -> None:
    assert Reader(render("\n\n".join(f"{'#' * n} x" for n in range(1, 7)))).tags == ["h3", "h4", "h5", "h6", "h6", "h6"]


def test_code_is_coloured_and_complete() -> None:
    code = "def f(x):\n    return '<b>' + x\n\n\n# end"
    html = render(f"```python\n{code}\n```")
    assert '<span class="t-k">def</span>' in html
    assert Reader(html).text.strip("\n") == code


@pytest.mark.parametrize("language", ["", "nosuchlanguage", "../../etc/passwd", "python extra words"])
def test_code_of_any_language_is_shown(language: str) -> None:
    assert "x = 1" in Reader(render(f"```{language}\nx = 1\n```")).text


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("$x^2$", ["x", "2"]),
        ("$$x^2$$", ["x", "2"]),
        (r"\(x^2\)", ["x", "2"]),
        (r"\[x^2\]", ["x", "2"]),
        ("\\[\nx^2\n\\]", ["x", "2"]),
        (r"so \[x^2\] it is", ["x", "2"]),
        ("- one\n- $x^2$", ["x", "2"]),
        ("| $x^2$ |\n|-|\n| y |", ["x", "2"]),
    ],
)
def test_formulae_become_mathml(text: str, symbols: list[str]) -> None:
    html = render(text)
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in html
    assert html.count("<math") == 1
    assert symbols == ["x", "2"]


@pytest.mark.parametrize(
    "text", ["It costs $5 or $10.", "from $1 to $2, not $3", r"a \( b", r"\[ open", "$", "$$", "a$b"]
)
def test_money_and_lone_marks_are_no_formulae(text: str) -> None:
    found = Reader(render(text))
    assert "math" not in found.tags
    assert found.text.strip().replace("\\", "") == text.replace("\\", "")


@pytest.mark.parametrize(
    "source", ["x" * 3_000, "\\frac{1", "{", "\\left(", "\\begin{matrix}", "&&&", "^", "\\\\", "#"]
)
def test_a_formula_that_cannot_be_read_is_not_lost(source: str) -> None:
    assert to_mathml(source, block=False)
    assert_harmless(render(f"$${source}$$"))


def test_words_in_formulae_are_shown_whatever_they_are() -> None:
    assert "<img src=x>" in Reader(render(r"$\text{<img src=x>}$")).text.replace("\xa0", " ")


def test_what_was_not_loaded_is_said() -> None:
    shown = Reader(render("![a cat](https://evil.test/cat.png)")).text
    assert shown.strip() == "[image, not loaded: a cat]"


def test_links_open_elsewhere_and_tell_nothing() -> None:
    html = render("[x](https://example.org/a?b=c)")
    assert 'href="https://example.org/a?b=c"' in html
    assert 'rel="noopener noreferrer nofollow"' in html
    assert 'target="_blank"' in html


def test_a_very_long_text_is_shown_as_it_is() -> None:
    text = "**word** " * (LONGEST // 8)
    shown = Reader(render(text))
    assert shown.text.endswith(text)
    assert "strong" not in shown.tags


@for_each(
    [
        *("[", "*", "**a *b", "$a", "\\(", "\\[\n", "![", "`", "~", "_a", "<", "&#", ">", "- ", "|", "[a](", "x\n"),
        *("\t", "$$\n", "1. ", "<a ", "]("),
    ]
)
def test_no_text_keeps_the_server_busy(unit: str) -> None:
    """A text that is all marks takes no more than a second or two of the processor, whatever the marks are."""
    text = (unit * LONGEST)[: LONGEST - 1]
    began = time.process_time()
    html = render.__wrapped__(text)
    assert time.process_time() - began < 4
    assert_harmless(html)


@pytest.mark.parametrize(
    ("html", "kept"),
    [
        ("<p onclick='x()'>a</p>", "<p>a</p>"),
        ("<script>alert(1)</script>b", "b"),
        ("<a href='javascript:1'>c</a>", '<a target="_blank" rel="noopener noreferrer nofollow">c</a>'),
        ("<span class='t-k evil'>d</span>", '<span class="t-k">d</span>'),
        ("<p id='screen' style='color:red' data-x=1>e</p>", "<p>e</p>"),
    ],
)
def test_the_sanitiser_alone_would_do(html: str, kept: str) -> None:
    """Whatever a step before it lets through, the last one stops it."""
    assert sanitise(html) == kept
