"""Replies with calls of tools, in the forms of the templates of several families."""

import json

import pytest
from call_templates import BARE, LISTED, NAMED, SCHEMA, TAGGED

from tutelage.commands.loading import load_policy
from tutelage.data.chat_tokens import encode
from tutelage.data.records import Message
from tutelage.data.tokenizer import TextStream
from tutelage.rollout.serving.jobs import CompletionPiece, TokenLogp
from tutelage.rollout.serving.protocol.model import Limits, ServedModel
from tutelage.rollout.serving.protocol.replies import Answer
from tutelage.rollout.serving.protocol.requests import read_chat

OBJECT = '{"name": "lookup", "%s": {"x": "über 1"}}'
TWO = [OBJECT % "arguments"] * 2
SAMPLED = {
    "tagged": (TAGGED, "I look.\n" + "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in TWO), "I look.", 2),
    "listed": (LISTED, f"[TOOL_CALLS][{', '.join(TWO)}]", None, 2),
    "named": (NAMED, 'So.[TOOL_CALLS]lookup[ARGS]{"x": "über 1"}', "So.", 1),
    "bare": (BARE, OBJECT % "parameters", None, 1),
    "marked": (BARE, f"<|python_tag|>{OBJECT % 'parameters'}", None, 1),
}
PLAIN = {
    "text": (TAGGED, "It is < 6 <tool miles."),
    "unreadable": (TAGGED, "I <tool_call>{oops</tool_call>"),
    "object": (BARE, '{"miles": 6}'),
    "list": (LISTED, "[TOOL] 6"),
}


@pytest.fixture(scope="module")
def loaded(tiny_model):
    return load_policy(tiny_model("qwen3"), device="cpu")


@pytest.fixture(params=[False, True], ids=["spelled", "special"])
def served(request, loaded):
    """A served model, of a tokenizer without special tokens for the marks of calls, or with them."""
    tokenizer = loaded.tokenizer.__class__.from_pretrained(loaded.tokenizer.name_or_path)
    if request.param:
        marks = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"]
        tokenizer.add_special_tokens({"additional_special_tokens": marks})

    def make(template):
        tokenizer.chat_template = template
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        return ServedModel("tiny", "tiny", tokenizer, frozenset({end}), Limits(200, 8, 1000, len(tokenizer)))

    return make


def replied(model, sampled, *, finish="stop", **more):
    """(reply, whole body, chunks) of a request whose model samples a text."""
    body = {"messages": [{"role": "user", "content": "How far?"}], "tools": [json.loads(SCHEMA)], "stream": True}
    reply = read_chat(body | more, model)
    ids = model.tokenizer.encode(sampled, add_special_tokens=False)
    (job,) = reply.generations
    stream = TextStream(model.tokenizer, job.sampling.stop, strips=job.strips, marks=job.marks)
    answer, chunks = Answer(), list(reply.opening())
    for place, token in enumerate([*ids, *model.end_ids][: None if finish == "stop" else len(ids)]):
        ended = token in model.end_ids or place == len(ids) - (finish == "length")
        text = (stream.finish() if ended and finish == "stop" else stream.push(token)) + (
            stream.finish() if ended and finish == "length" else ""
        )
        piece = CompletionPiece(0, (TokenLogp(token, 0.0, {}),), text, "1", finish if ended else None)
        answer.add(piece)
        chunks.append(reply.chunk(0, piece, answer))
    return reply.body([[answer]], []), [chunk["choices"][0] for chunk in chunks if chunk is not None]


def assembled(chunks):
    """(content, calls, finish) as OpenAI's client assembles the deltas of a stream."""
    content, calls = "", {}
    for chunk in chunks:
        content += chunk["delta"].get("content") or ""
        for part in chunk["delta"].get("tool_calls", ()):
            held = calls.setdefault(part["index"], {"id": "", "type": "function", "name": "", "arguments": ""})
            held["id"] += part.get("id", "")
            for name, text in part["function"].items():
                held[name] += text
    return content, calls, [chunk["finish_reason"] for chunk in chunks if chunk["finish_reason"]]


@pytest.mark.parametrize("name", SAMPLED)
def test_calls_are_those_of_the_text_whole_and_in_a_stream(served, name):
    template, sampled, content, count = SAMPLED[name]
    whole, chunks = replied(served(template), sampled)
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == content
    calls = choice["message"]["tool_calls"]
    assert [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls] == [
        ("lookup", {"x": "über 1"})
    ] * count
    assert len({call["id"] for call in calls}) == count
    text, held, finishes = assembled(chunks)
    assert (text or None, finishes) == (content, ["tool_calls"])
    assert [
        {"id": one["id"], "type": "function", "function": {k: one[k] for k in ("name", "arguments")}}
        for one in held.values()
    ] == calls


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_turn_without_a_call_that_can_be_read_is_its_text(served, name, finish):
    template, sampled = PLAIN[name]
    whole, chunks = replied(served(template), sampled, finish=finish)
    (choice,) = whole["choices"]
    assert choice["message"] == {"role": "assistant", "content": sampled, "refusal": None}
    assert choice["finish_reason"] == finish
    assert assembled(chunks) == (sampled, {}, [finish])
    if name == "text":
        assert sum("content" in chunk["delta"] for chunk in chunks) > 5, "a text is streamed while it is sampled"


def test_a_call_that_is_whole_is_returned_also_at_the_limit(served):
    template, sampled, _, count = SAMPLED["tagged"]
    (choice,) = replied(served(template), sampled, finish="length")[0]["choices"]
    assert (choice["finish_reason"], len(choice["message"]["tool_calls"])) == ("length", count)


def test_calls_go_back_into_the_prompt_that_the_template_writes(served):
    """And a later turn of the same text has calls of other ids."""
    model = served(TAGGED)
    (choice,) = replied(model, SAMPLED["tagged"][1])[0]["choices"]
    results = [{"role": "tool", "tool_call_id": c["id"], "content": "6"} for c in choice["message"]["tool_calls"]]
    messages = [{"role": "user", "content": "How far?"}, choice["message"], *results]
    reply = read_chat({"messages": messages, "tools": [json.loads(SCHEMA)]}, model)
    asked, answer, *_ = reply.conversation
    assert [call.id for call in answer.calls] == [result["tool_call_id"] for result in results]
    told = tuple(Message("tool", "6", name="lookup", call_id=call.id) for call in answer.calls)
    assert reply.prompts == [tuple(encode((asked, answer, *told), None, model.tokenizer)[0])]
    ids = model.tokenizer.encode(SAMPLED["tagged"][1], add_special_tokens=False)
    later = model.turn(ids, "", reply.conversation).message
    assert not {call.id for call in later.calls} & {call.id for call in answer.calls}


def test_other_special_tokens_are_in_no_text_and_in_no_call(served):
    template, sampled, content, _ = SAMPLED["tagged"]
    whole, chunks = replied(served(template), sampled.replace("look", "<|end|>look").replace('"x"', '<|end|>"x"'))
    message = whole["choices"][0]["message"]
    assert (message["content"], assembled(chunks)[0]) == (content, content)
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"x": "über 1"}


def test_without_tools_nothing_is_read(served):
    template, sampled, _, _ = SAMPLED["tagged"]
    whole, _ = replied(served(template), sampled, tool_choice="none")
    message = whole["choices"][0]["message"]
    assert "tool_calls" not in message
