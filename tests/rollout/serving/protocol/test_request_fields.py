"""Fields of requests: null means left out, and a refusal names the field and the value."""

from typing import Any

import pytest
from offenders import for_each

from tutelage.rollout.serving.protocol.model import Limits
from tutelage.rollout.serving.protocol.request_fields import (
    ChatFields,
    CompletionsFields,
    GenerateFields,
    MessageFields,
    RequestError,
    read_fields,
)

LIMITS = Limits(tokens=80, answers=64, context=96, vocabulary=300)


def test_null_means_left_out() -> None:
    names = CompletionsFields.__struct_fields__
    nulls = dict.fromkeys([*names, "logit_bias", "elsewhere"])
    assert read_fields(CompletionsFields, nulls, LIMITS.bounds) == CompletionsFields()


def test_whole_numbers_are_numbers_and_the_bounds_are_included() -> None:
    body = {"temperature": 1, "top_p": 1, "seed": 2**64 - 1, "n": 64, "max_tokens": 0, "stop": "x"}
    fields = read_fields(CompletionsFields, body, LIMITS.bounds)
    assert repr(fields.temperature) == "1.0"
    assert (fields.seed, fields.n, fields.max_tokens) == (2**64 - 1, 64, 0)
    assert fields.stop == "x"


@for_each(
    [
        (CompletionsFields, {"seed": 2**64}, "seed", ["whole number", str(2**64 - 1)]),
        (CompletionsFields, {"n": True}, "n", ["1 to 64", "True"]),
        (CompletionsFields, {"n": 1.0}, "n", ["whole number", "1.0"]),
        (CompletionsFields, {"temperature": 100.5}, "temperature", ["0 to 100", "100.5"]),
        (CompletionsFields, {"echo": 0}, "echo", ["true or false", "0"]),
        (CompletionsFields, {"stream_options": []}, "stream_options", ["JSON object"]),
        (
            CompletionsFields,
            {"stream_options": {"includeusage": True}},
            "stream_options.includeusage",
            ["Unknown", "include_usage"],
        ),
        (CompletionsFields, {"min_tokens": 2}, "min_tokens", ["not supported", "2"]),
        (ChatFields, {}, "messages", ["at least one message"]),
        (ChatFields, {"messages": ["x"], "logprobs": 1}, "logprobs", ["true or false", "1"]),
        (GenerateFields, {"token_ids": "x"}, "token_ids", ["token ids", "'x'"]),
        (
            GenerateFields,
            {"token_ids": [1], "sampling_params": {"max_tokens": 81}},
            "sampling_params.max_tokens",
            ["0 to 80", "81"],
        ),
        (
            GenerateFields,
            {"token_ids": [1], "sampling_params": {"topp": 1}},
            "sampling_params.topp",
            ["Unknown", "top_p"],
        ),
        (MessageFields, {"role": "user", "content": [{"type": "text", "text": 3}]}, "content", ["a text"]),
    ]
)
def test_a_refusal_names_the_field_and_what_it_takes(
    kind: Any, body: dict[str, Any], param: str, words: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        read_fields(kind, body, LIMITS.bounds)
    assert caught.value.param == param
    assert [word for word in words if word not in str(caught.value)] == []
