"""Text of models: what it may look like, and that it can do nothing."""

import re
import time
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.people.web.render import LONGEST, Images, direction_of, plain, render, sanitise

TAGS = {
    "p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "hr", "br", "div", "table", "thead", "tbody",
    "tr", "th", "td", "em", "strong", "s", "code", "a", "span", "sup", "sub", "math", "mrow", "mi", "mn", "mo", "mtext",
    "ms", "mspace", "msup", "msub", "msubsup", "mfrac", "msqrt", "mroot", "mover", "munder", "munderover",
    "mmultiscripts", "mtable", "mtr", "mtd", "mstyle", "mpadded", "mphantom",
}  # fmt: skip
HARMLESS = {
    "title", "start", "display", "stretchy", "fence", "form", "accent", "mathvariant", "accentunder", "linethickness",
    "displaystyle", "scriptlevel", "tabindex", "dir", "width",
}  # fmt: skip
CLASSES = {
    "code", "plain", "not-shown", "invisible", "table", "math", "left", "center", "right", "boxed", "struck",
    "ruled-after", "ruled-below",
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


def hidden_again(html: str) -> str:
    """The text of a piece of HTML, its invisible characters in place of their numbers."""
    number = re.compile('<span class="invisible">U\\+([0-9A-F]+)</span>')
    return Reader(number.sub(lambda match: chr(int(match[1], 16)), html)).text


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
            assert all(each.startswith("t-") or each in CLASSES for each in value.split())
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
    shown = hidden_again(plain(text))
    assert shown.replace("\r\n", "\n") == text.replace("\r\n", "\n")  # browsers take both for one line end


@given(st.lists(st.text(st.characters(categories=["L"]), min_size=1, max_size=12), min_size=1, max_size=20))
def test_words_are_kept_in_order(words: list[str]) -> None:
    assert Reader(render(" ".join(words))).text.split() == words


def test_markdown_is_formatted() -> None:
    html = render(
        "# Title\n\nA *word* and **two**\nnext line\n\n1. one\n2. two\n\n> said\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    html = html.replace(' dir="ltr"', "")
    for piece in ("<h3>Title</h3>", "<em>word</em>", "<strong>two</strong><br>", "<ol>", "<blockquote>", "<td>2</td>"):
        assert piece in html


ARABIC, HEBREW = "\u0646\u0639\u0645", "\u05db\u05df"


@for_each(
    [
        ("yes", {"p": ["ltr"]}),
        (ARABIC, {"p": ["rtl"]}),
        ("123 \u2013 !", {"p": []}),
        (f"1. {HEBREW} yes", {"ol": ["rtl"], "li": ["rtl"]}),
        (f"yes {HEBREW}\n\n{HEBREW} yes", {"p": ["ltr", "rtl"]}),
        (f"- yes\n- {ARABIC}", {"ul": ["ltr"], "li": ["ltr", "rtl"]}),
        (f"`code` {ARABIC}", {"p": ["rtl"]}),
        (f"> # {HEBREW}", {"blockquote": ["rtl"], "h3": ["rtl"]}),
        (f"| {ARABIC} | b |\n|-|-|\n| 1 | {ARABIC} |", {"table": ["rtl"], "th": ["rtl", "ltr"], "td": ["rtl"]}),
    ]
)
def test_each_block_has_the_direction_of_its_first_letter(text: str, directions: dict[str, list[str]]) -> None:
    attributes = assert_harmless(render(text)).attributes
    assert {
        tag: [value for name, attribute, value in attributes if (name, attribute) == (tag, "dir")] for tag in directions
    } == directions


@given(st.text(max_size=60))
def test_a_direction_is_that_of_the_first_letter(text: str) -> None:
    letters = [character for character in text if direction_of(character)]
    assert direction_of(text) == direction_of("".join(letters[:1]))


def test_columns_keep_their_alignment_and_tables_their_own_scrolling() -> None:
    found = assert_harmless(render("| a | b | c | d |\n|:-|:-:|-:|-|\n| 1 | 2 | 3 | 4 |"))
    for tag in ("th", "td"):
        aligned = [value for name, attribute, value in found.attributes if (name, attribute) == (tag, "class")]
        assert aligned == ["left", "center", "right"]
    assert ("div", "class", "table") in found.attributes
    assert ("div", "tabindex", "0") in found.attributes


@for_each([*"\u202e\u2066\u200b\u200d\u200c\u200e\u2060\u00ad\ufeff\u061c\u3164\x1b\x7f\x85\u2028", "\U000e0041"])
def test_an_invisible_character_is_shown_by_its_number_wherever_it_is(character: str) -> None:
    """In words, code, formulae and texts as they were written; what is between tags alone changes."""
    label = f'<span class="invisible">U+{ord(character):04X}</span>'
    for html in (
        render(f"a{character}b"),
        render(f"`a{character}b`"),
        render(f"```\na{character}b\n```"),
        render(f"$\\text{{a{character}b}}$"),
        plain(f"a{character}b"),
    ):
        assert html.count(label) == 1, html
        assert character not in html
        assert_harmless(html)
    assert label not in render(f'[x](https://example.org "a{character}b")')


@for_each(
    [
        *(
            "\u0645\u06cc\u200c\u0634\u0648\u062f",
            "\u0915\u094d\u200d\u0937",
            "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        ),
        *("\u2764\ufe0f\u200d\U0001f525", "\U0001f3f4\U000e0067\U000e0062\U000e007f"),
    ]
)
def test_joiners_of_words_emoji_and_flags_stay_as_they_are(text: str) -> None:
    assert Reader(render(text)).text.strip() == text


def test_headings_stay_below_those_of_the_page() -> None:
    assert Reader(render("\n\n".join(f"{'#' * n} x" for n in range(1, 7)))).tags == ["h3", "h4", "h5", "h6", "h6", "h6"]


def test_code_is_coloured_and_complete() -> None:
    code = "def f(x):\n    return '<b>' + x\n\n\n# end"
    html = render(f"```python\n{code}\n```")
    assert '<span class="t-k">def</span>' in html
    assert Reader(html).text.strip("\n") == code


@for_each(["", "nosuchlanguage", "../../etc/passwd", "python extra words"])
def test_code_of_any_language_is_shown(language: str) -> None:
    assert "x = 1" in Reader(render(f"```{language}\nx = 1\n```")).text


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


@for_each(
    [
        ("<p onclick='x()'>a</p>", "<p>a</p>"),
        ("<script>alert(1)</script>b", "b"),
        ("<a href='javascript:1'>c</a>", '<a target="_blank" rel="noopener noreferrer nofollow">c</a>'),
        ("<span class='t-k evil'>d</span>", '<span class="t-k">d</span>'),
        ("<p id='screen' style='color:red' data-x=1>e</p>", "<p>e</p>"),
    ]
)
def test_the_sanitiser_alone_would_do(html: str, kept: str) -> None:
    """Whatever a step before it lets through, the last one stops it."""
    assert sanitise(html) == kept


NAME = f"{'0f' * 32}.png"
PICTURES = Images.of("/s/name", {NAME: (1_280, 320)})


def test_an_image_of_the_study_is_a_link_to_itself() -> None:
    address = f"/s/name/images/{NAME}"
    picture = f'<img src="{address}" alt="a &lt;b&gt; &quot;c&quot;" width="640" height="160">'
    assert render(f'![a <b> "c"](images/{NAME})', images=PICTURES) == (
        f'<p><a class="image" href="{address}" target="_blank" rel="noopener">{picture}</a></p>\n'
    )
    assert 'alt="图片"' in render(f"![](images/{NAME})", "zh", PICTURES)


@for_each(
    [
        "![x](https://evil.test/a.png)",
        f"![x](//evil.test/images/{NAME})",
        f"![x](/images/{NAME})",
        f"![x](images/{NAME}?a=1)",
        f"![x](images/../images/{NAME})",
        f"![x](images/{'1f' * 32}.png)",
        f'<img alt="x" data-image="{NAME}">',
        f'<a class="image" href="images/{NAME}">x</a>',
        f"[x](images/{NAME})",
        f'![x" onload="alert(1)](images/{NAME}.svg)',
    ]
)
def test_nothing_else_becomes_an_image(text: str) -> None:
    html = render(text, images=PICTURES)
    assert_harmless(html)
    assert "<img" not in html


@given(st.text(max_size=60))
def test_the_words_of_an_image_stay_words(words: str) -> None:
    html = render(f"![{words}](images/{NAME})", images=PICTURES)
    found = Reader(html)
    assert set(found.tags) <= TAGS | {"img"}
    assert {name for tag, name, _ in found.attributes if tag == "img"} <= {"src", "alt", "width", "height"}
    assert {value for tag, name, value in found.attributes if name == "src"} <= {f"/s/name/images/{NAME}"}
