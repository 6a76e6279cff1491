"""A chat template writes every turn, tool and thought of a conversation, or the conversation is refused."""

import datetime

import pytest
from chat_tokenizers import CALL, CHATML, DROPS, PLAIN, QUESTION, RESULT, TALK, TOOLS, WITH_TEMPLATE, byte_level
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.chat_template import are_written, dated, render_prompt, stop_strings
from tutelage.data.chat_tokens import encode
from tutelage.data.records import AssistantTurn, Message, Messages, user


def test_the_plain_form_is_the_one_that_is_documented() -> None:
    assert render_prompt(TALK, PLAIN) == (
        "System: Be brief.\nUser: What is rain?\nAssistant: Water.\nUser: And snow?\nAssistant:"
    )
    prompt, response = encode(TALK, "Frozen water.", PLAIN)
    assert PLAIN.decode(prompt + response) == render_prompt(TALK, PLAIN) + " Frozen water.</s>"
    assert stop_strings(PLAIN) == ("\nUser:",)
    assert stop_strings(WITH_TEMPLATE["chatml"]) == ()


def test_thoughts_of_earlier_turns_may_be_left_out_and_nothing_else() -> None:
    tokenizer = byte_level(DROPS)
    talk = (user("What is rain?")[0], Message("assistant", "<think>\nHm.\n</think>\n\nWater."), *user("And snow?"))
    asked = render_prompt(talk, tokenizer)
    assert "Hm." not in asked
    assert "Water." in asked
    cut = byte_level(CHATML.replace("for m in messages", "for m in messages[-1:]"))
    with pytest.raises(TutelageError, match=r"turn 1 \(user\), 'What is rain\?'"):
        encode(talk, None, cut)


def test_a_template_writes_the_date_of_the_run() -> None:
    tokenizer = byte_level("Today: {{ strftime_now('%d %b %Y') }}\n" + CHATML)
    with dated(datetime.date(2024, 2, 29)):
        assert render_prompt(TALK, tokenizer).startswith("Today: 29 Feb 2024\n")
        with dated(datetime.date(2025, 1, 1)):
            assert "01 Jan 2025" in render_prompt(TALK, tokenizer)
        assert "29 Feb 2024" in render_prompt(TALK, tokenizer)
    assert f"{datetime.date.today():%d %b %Y}" in render_prompt(TALK, tokenizer)


def test_a_conversation_with_tools_takes_the_template_for_tools() -> None:
    dated_text = "{{ strftime_now('%Y') }}\n"
    tokenizer = byte_level(TOOLS)
    for of_tools in (TOOLS, dated_text + TOOLS):
        tokenizer.chat_template = {"default": dated_text + CHATML, "tool_use": of_tools}
        with dated(datetime.date(2024, 2, 29)):
            shown = render_prompt((QUESTION,), tokenizer)
            assert "weather" in shown
            assert shown.startswith("2024") == (of_tools != TOOLS)
            assert render_prompt(user("Rain?"), tokenizer).startswith("2024\n<|im_start|>user")


def test_an_answered_conversation_asks_nothing() -> None:
    with pytest.raises(TutelageError, match="nothing to answer"):
        encode(TALK[:3], None, PLAIN)


def test_conversations_are_written_or_not_one_by_one() -> None:
    """Those that a template refuses or changes do not concern the others of their batch."""
    change = "raise_exception('no') if 'Hail' in m.content else m.content | replace('w', 'W')"
    talks = [user(text) for text in ("Rain?", "Snow?", "Hail?", "Ice?")]
    tokenizer = byte_level(CHATML.replace("m.content", change))
    assert are_written(talks, tokenizer) == [True, False, False, True]
    assert are_written(talks[:2], tokenizer) == [True, False]
    assert are_written(talks, PLAIN) == [True] * 4
    assert are_written([], tokenizer) == []


UNSEEN: list[tuple[Messages, AssistantTurn | None, str]] = [
    ((QUESTION,), None, "tools"),
    ((Message("user", "Rain?"), CALL, RESULT), "So.", "calls"),
    (user("Rain?"), CALL, "calls"),
    (user("1+1?"), Message("assistant", "2", "One and one."), "thinking"),
]


@for_each(UNSEEN)
def test_what_a_chat_template_does_not_show_is_refused_by_name(
    messages: Messages, response: AssistantTurn | None, what: str
) -> None:
    with pytest.raises(TutelageError, match=f"does not show {what}"):
        encode(messages, response, byte_level(CHATML))
    with pytest.raises(TutelageError, match="without a chat template"):
        encode(messages, response, byte_level())


def test_a_result_that_is_not_shown_is_refused() -> None:
    silent = TOOLS.replace("{{ m.content }}", "{% if m.role != 'tool' %}{{ m.content }}{% endif %}")
    with pytest.raises(TutelageError, match="results"):
        encode((QUESTION, CALL, RESULT), "So.", byte_level(silent))
