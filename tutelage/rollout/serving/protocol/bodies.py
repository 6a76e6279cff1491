"""Request bodies in OpenAI's formats, with vLLM's additions for token ids."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from tutelage.rollout.serving.protocol.request_fields import Flag, Ids, Number, Text, Texts, Whole


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
