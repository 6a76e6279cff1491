"""Traces as HTML: cards of calls and results, and hostile texts that stay texts."""

import json

from offenders import for_each

from tutelage.data.records import Message, ToolCall, user
from tutelage.people.web.render import render
from tutelage.people.web.traces import is_error, messages_data, step_html, steps_data

HOSTILE = '<script>alert("x")</script>\u202e'


@for_each(
    [
        ("error: no such page", True),
        ("  Error: 3", True),
        ("Traceback (most recent call last):\n  ...", True),
        ('{"error": "late"}', True),
        ('{"error": null, "rows": 3}', False),
        ("The error of the mean is 3.", False),
        ("errors: none", False),
        ("{", False),
        ("", False),
    ]
)
def test_a_result_that_says_it_failed_is_an_error(content: str, failed: bool) -> None:
    assert is_error(content) is failed
    assert ('class="card result error"' in step_html((Message("tool", content),), render, "en")) is failed


def test_every_text_of_a_message_is_escaped() -> None:
    call = ToolCall(HOSTILE, json.dumps({HOSTILE: HOSTILE, "more": [HOSTILE]}), HOSTILE)
    schema = json.dumps({"function": {"name": HOSTILE, "description": HOSTILE}})
    message = Message("assistant", HOSTILE, HOSTILE, (call,), tools=(schema,))
    html = step_html((message, Message("tool", HOSTILE, name=HOSTILE), Message("user", HOSTILE)), render, "en")
    assert "<script" not in html
    assert "\u202e" not in html
    assert html.count("U+202E") == 11


def test_arguments_are_read_exactly_and_a_result_has_the_name_of_its_call() -> None:
    call = ToolCall("add", '{"large": 12345678901234567890, "text": "a\\nb", "flag": true}', "c1")
    html = step_html((Message("assistant", "", calls=(call,)), Message("tool", "4", call_id="c1")), render, "en")
    assert all(part in html for part in (">12345678901234567890<", ">a\nb<", ">true<"))
    assert html.count('<bdi class="tool">add</bdi>') == 2


def test_a_long_result_is_folded_and_whole() -> None:
    lines = [f"line {number}" for number in range(200)]
    html = step_html((Message("tool", "\n".join(lines)),), render, "en")
    assert html.count("<details") == 1
    assert [line for line in lines if line not in html] == []
    assert "<details" not in step_html((Message("tool", "\n".join(lines[:15])),), render, "en")


def test_images_of_a_result_are_shown_after_its_text() -> None:
    name = f"{'a' * 64}.png"
    content = f"<b>Seen</b>\n\n![a \\[red\\] field](images/{name})\n\n![](https://example.org/x.png)"
    html = step_html((Message("tool", content),), lambda text: f"({text})", "en")
    assert f"(![a \\[red\\] field](images/{name}))" in html
    assert "&lt;b&gt;Seen&lt;/b&gt;![](https://example.org/x.png)</pre>" in html


def test_a_plain_message_is_its_text_and_a_step_is_also_there_as_it_was_written() -> None:
    (plain,) = messages_data(user("Hello *you*"), render, "en")
    assert plain == {"role": "user", "html": '<p dir="ltr">Hello <em>you</em></p>\n', "text": "Hello *you*"}
    texts = [step["text"] for step in steps_data(("*one*", (Message("assistant", "two"),)), render, "en")]
    assert texts == ["*one*", "two"]
