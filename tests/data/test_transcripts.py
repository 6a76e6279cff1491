"""Conversations as one text become messages again."""

import json

import pytest
from offenders import for_each

from tutelage.data.records import Message, ToolCall
from tutelage.data.row_values import Unusable
from tutelage.data.transcripts import has_marks, parse_glaive, parse_transcript, split_episode, without_end

TURNS = (Message("system", "Be brief."), Message("user", "Rain?"), Message("assistant", "Yes."), Message("user", "So?"))
TEMPLATES = {
    "ChatML": ("", "<|im_start|>{role}\n{content}<|im_end|>\n"),
    "Llama 3": ("<|begin_of_text|>", "<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>"),
    "Gemma": ("<bos>", "<start_of_turn>{role}\n{content}<end_of_turn>\n"),
    "Phi": ("", "<|{role}|>\n{content}<|end|>\n"),
    "Zephyr": ("<s>", "<|{role}|>\n{content}</s>\n"),
}


@for_each(TEMPLATES.values())
def test_marks_of_chat_templates_are_read_as_turns(start: str, turn: str) -> None:
    text = start + "".join(turn.format(role=message.role, content=message.content) for message in TURNS)
    assert has_marks(text)
    assert parse_transcript(text) == TURNS
    opened = turn.partition("{content}")[0].format(role="assistant")
    assert parse_transcript(text + opened) == (*TURNS, Message("assistant", ""))
    end = turn.partition("{content}")[2]
    assert without_end("Yes." + end) == "Yes."


@for_each(["Rain?", "What does <|im_start|>user mean?", "<b>Rain</b>", "<|im_start|>", ""])
def test_a_text_without_turns_has_no_marks(text: str) -> None:
    assert not has_marks(text)
    assert without_end(text) == text


def test_an_empty_system_turn_is_left_out() -> None:
    turns = "<|system|>\n</s>\n<|user|>\nq</s>\n<|assistant|>\na</s>"
    assert parse_transcript(turns) == (Message("user", "q"), Message("assistant", "a"))


@for_each(["<|im_start|>user\nRain?<|im_end|>\nOops", "<|im_start|>bot\nRain?<|im_end|>\n"])
def test_text_between_marks_and_unknown_roles_are_refused(text: str) -> None:
    with pytest.raises(Unusable):
        parse_transcript(text)


def test_glaive() -> None:
    function = {"name": "weather", "parameters": {"type": "object"}}
    system = (
        "SYSTEM: You are a helpful assistant with access to the following functions. Use them if required -\n"
        f"{json.dumps(function, indent=4)}\n"
    )
    chat = (
        'USER: Rain in Rome?\n\n\nASSISTANT: <functioncall> {"name": "weather", "arguments": \'{"city": "Rome"}\'} '
        '<|endoftext|>\n\n\nFUNCTION RESPONSE: {"rain": true}\n\n\nASSISTANT: It rains. <|endoftext|>\n\n\n'
    )
    schema = json.dumps({"type": "function", "function": function})
    assert parse_glaive(system, chat) == (
        Message("system", "You are a helpful assistant", tools=(schema,)),
        Message("user", "Rain in Rome?"),
        Message("assistant", "", calls=(ToolCall("weather", '{"city": "Rome"}'),)),
        Message("tool", '{"rain": true}'),
        Message("assistant", "It rains."),
    )
    gap = "\n" * 20_000
    assert parse_glaive("", f"USER: a{gap}b\n\n\nASSISTANT: c")[0].content == f"a{gap}b"
    plain = parse_glaive(
        "SYSTEM: You help, with no access to external functions.\n", "USER: Hi\n\n\nASSISTANT: Hello <|endoftext|>"
    )
    assert plain[0] == Message("system", "You help, with no access to external functions.")


def test_an_episode_begins_before_its_first_turn() -> None:
    prompt = TURNS
    turn, more, last = Message("assistant", "So."), Message("user", "Go on."), Message("assistant", "Done.")
    own = Message("system", "A program's own.")
    for opening in (
        prompt,
        (*prompt, Message("user", "Well?")),
        (*prompt[:-1], Message("user", "So? Go to Ayr.")),
        (own, *prompt[1:]),
        (own, *prompt),
    ):
        assert split_episode((*opening, turn, more, last), prompt) == (opening, (turn, more, last))
    assert split_episode((own, turn), prompt) == ((own,), (turn,)), "a program that drops what was said before"
