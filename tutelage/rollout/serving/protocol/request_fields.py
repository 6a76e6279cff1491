"""Request bodies as msgspec structs, in OpenAI's formats with vLLM's additions for token ids; and refusals.

The type of a field is one of the annotated types below or another struct, which is a section. Null is equivalent to
omission. A struct with `forbid_unknown_fields` refuses unknown fields, unless their value has no effect.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo

from tutelage.base.errors import TutelageError, did_you_mean

Flag = Annotated[bool, Meta(description="true or false")]
Whole = Annotated[int, Meta(description="a whole number")]
Number = Annotated[float, Meta(description="a number")]
Text = Annotated[str, Meta(description="a text")]
Texts = Annotated[str | tuple[str, ...], Meta(description="a text or a list of texts")]
Ids = Annotated[tuple[int, ...], Meta(description="a list of token ids")]
Bounds = Mapping[str, tuple[int, int]]
"""Minimum and maximum of numbers, by field name."""
UNBOUNDED: Bounds = {}
S = TypeVar("S", bound=Struct)

ERROR_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""Error types by status; others are invalid requests, or server errors from 500."""

IGNORED = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "priority", "cache_salt",
    "skip_special_tokens", "spaces_between_special_tokens", "detokenize", "output_mode",
})  # fmt: skip
"""Fields that change no token, or have no effect without another, refused field."""

WITHOUT_EFFECT: Mapping[str, Sequence[Any]] = {
    "frequency_penalty": (0,), "presence_penalty": (0,), "repetition_penalty": (1,), "logit_bias": ({},),
    "suffix": ("",), "tools": ([],), "functions": ([],), "response_format": ({"type": "text"},), "min_tokens": (0,),
    "include_stop_str_in_output": (False,), "length_penalty": (1,), "use_beam_search": (False,),
    "truncate_prompt_tokens": (), "prompt_logprobs": (), "bad_words": ([],), "continue_final_message": (False,),
    "add_generation_prompt": (True,), "modalities": (["text"],), "audio": (), "prediction": (),
    "reasoning_effort": (), "chat_template": (), "chat_template_kwargs": ({},), "documents": (), "features": (),
    "kv_transfer_params": (),
}  # fmt: skip
"""Unsupported fields, with the values (besides null) that have no effect."""


class RequestError(TutelageError):
    """Refused request with an HTTP status. `param` is the invalid field, `code` a machine-readable name, `wait` the
    seconds until it may be repeated, if it may."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None, wait: int = 0
    ):
        super().__init__(message)
        self.status, self.param, self.code, self.wait = status, param, code, wait


def error_body(message: str, status: int, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def refusal(field: str, reason: str) -> RequestError:
    return RequestError(f"{field} {reason}.", param=field)


def read_fields(kind: type[S], body: object, bounds: Bounds = UNBOUNDED, section: str = "") -> S:
    """Read a struct from a body, or from its `section`. Raises RequestError for missing and invalid fields."""
    if not isinstance(body, dict):
        raise RequestError(f"{section or 'The body'} must be a JSON object.", param=section or None)
    prefix, fields, values = f"{section}." if section else "", _fields(kind), {}
    for name, field in fields.items():
        if (value := body.get(name)) is not None or field.required:
            values[name] = convert(field.type, value, prefix + name, bounds)
    if kind.__struct_config__.forbid_unknown_fields:
        for name, value in body.items():
            if value is not None and name not in fields and name not in IGNORED:
                _check_effect(name, value, prefix, list(fields))
    return kind(**values)


def convert(kind: Any, value: object, name: str, bounds: Bounds = UNBOUNDED) -> Any:
    """Convert a value to a field type. Raises RequestError for a value of another type or out of bounds."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return read_fields(kind, value, bounds, name)
    kinds = (kind, *get_args(kind))
    expected = next((each.__metadata__[0].description for each in kinds if hasattr(each, "__metadata__")), "")
    interval = bounds.get(name.rpartition(".")[2]) if expected.endswith("number") else None
    if interval:
        expected += " from {} to {}".format(*interval)
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        converted = None
    if converted is None or (interval and not interval[0] <= converted <= interval[1]):
        raise refusal(name, f"must be {expected}, not {excerpt(value)}")
    return converted


@cache
def _fields(kind: type[Struct]) -> dict[str, FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind)}


def _check_effect(name: str, value: object, prefix: str, known: list[str]) -> None:
    """Raise RequestError for an unknown field, and for an unsupported one whose value has an effect."""
    if name not in WITHOUT_EFFECT:
        raise RequestError(f"Unknown field {prefix}{name!r}{did_you_mean(name, known)}", param=prefix + name)
    if value not in WITHOUT_EFFECT[name]:
        raise refusal(prefix + name, f"is not supported here: leave it out (it is {excerpt(value)})")


def excerpt(value: object) -> str:
    """The beginning of a value in a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# Bodies ---------------------------------------------------------------------------------------------------------------


class SamplingFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sampling fields, common to all formats."""

    temperature: Number = 1.0
    top_p: Number = 1.0
    top_k: Whole = 0
    min_p: Number = 0.0
    stop: Texts = ()
    stop_token_ids: Ids = ()
    ignore_eos: Flag = False
    seed: Whole | None = None
    n: Whole = 1
    max_tokens: Whole | None = None
    section: ClassVar[str] = ""
    """Prefix of field names in refusals."""


class StreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a stream."""

    include_usage: Flag = False
    continuous_usage_stats: Flag = False


class TextFields(SamplingFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of both text formats."""

    model: Text = ""
    request_id: Text = ""
    stream: Flag = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: Flag = False


class CompletionsFields(TextFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`/v1/completions`: continue texts or token ids."""

    prompt: Any = None
    echo: Flag = False
    logprobs: Whole | None = None
    best_of: Whole | None = None
    add_special_tokens: Flag = True
    return_tokens_as_token_ids: Flag = False


class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """Part of a message."""

    text: str = ""


class MessageFields(Struct, frozen=True):
    """Turn of a conversation."""

    role: Annotated[
        Literal["system", "developer", "user", "assistant", "tool"],
        Meta(description="system, developer, user, assistant or tool"),
    ]
    content: (
        Annotated[
            str | tuple[TextPart, ...],
            Meta(description="a text, or parts of the type text, since this model reads nothing else"),
        ]
        | None
    ) = None
    """Required, except of an assistant with calls."""
    reasoning_content: Text = ""
    reasoning: Text = ""
    """Thinking of an assistant, by either name."""
    tool_calls: Any = None
    """Calls of an assistant."""
    function_call: Any = None
    """A call in OpenAI's form before `tool_calls`, which is refused."""
    tool_call_id: Text = ""
    """The call whose result a tool's message is."""


class ChatFields(TextFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`/v1/chat/completions`: reply to a conversation."""

    messages: Annotated[list[Any], Meta(min_length=1, description="a list of at least one message")]
    max_completion_tokens: Whole | None = None
    logprobs: Flag = False
    top_logprobs: Whole | None = None
    tools: Any = None
    tool_choice: Any = "auto"
    parallel_tool_calls: Flag = True


class GenerateSampling(SamplingFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sampling fields, and the number of most likely tokens to report."""

    logprobs: Whole | None = None
    section: ClassVar[str] = "sampling_params."


class GenerateFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`/inference/v1/generate`: token ids in, token ids and log-probabilities out, as in vLLM."""

    token_ids: Ids
    model: Text = ""
    request_id: Text = ""
    stream: Flag = False
    stream_options: Any = None
    sampling_params: GenerateSampling = GenerateSampling()
