"""Parsing of completion requests: validated against the model and converted to jobs."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

from tutelage.base import config
from tutelage.data.records import Message, Messages, Role, tools_of
from tutelage.data.row_values import Unusable
from tutelage.data.tool_calls import read_calls, read_tools
from tutelage.rollout.serving.jobs import Generation, Scoring
from tutelage.rollout.serving.protocol.model import MOST_STOPS, ServedModel
from tutelage.rollout.serving.protocol.replies import ChatReply, CompletionsReply, GenerateReply
from tutelage.rollout.serving.protocol.request_fields import (
    ChatFields,
    CompletionsFields,
    GenerateFields,
    Ids,
    MessageFields,
    RequestError,
    SamplingFields,
    convert,
    excerpt,
    read_fields,
    refusal,
)

DEFAULT_TOKENS = 16
"""Default number of tokens of a completion, as in OpenAI's API."""


def read_completions(body: object, model: ServedModel) -> CompletionsReply:
    """Parse a request. Raises TutelageError if it is refused."""
    fields = read_fields(CompletionsFields, body, model.limits.bounds)
    adapter, prompts, logprobs = model.adapter(fields.model), _prompts(fields, model), fields.logprobs
    tokens = DEFAULT_TOKENS if fields.max_tokens is None else fields.max_tokens
    if fields.stream and fields.echo:
        raise refusal("echo", "is not supported together with stream")
    if tokens == 0 and not fields.echo:
        raise refusal("max_tokens", "is 0, which leaves nothing to answer without echo")
    if fields.best_of not in (None, fields.n):
        raise refusal("best_of", f"is not supported with another value than n, which is {fields.n}")
    jobs = []
    if tokens:
        names = {"name": fields.request_id, "adapter": adapter}
        jobs = _generations(model, fields, prompts, tokens, top=logprobs, streams=fields.stream, **names)
    scored = fields.echo and logprobs is not None
    return CompletionsReply(
        model=model,
        prompts=prompts,
        generations=jobs,
        scorings=[Scoring(prompt, logprobs or 0, adapter) for prompt in prompts if scored],
        streams=fields.stream,
        fields=fields,
    )


def read_chat(body: object, model: ServedModel) -> ChatReply:
    """Parse a request. Raises TutelageError if it is refused."""
    fields = read_fields(ChatFields, body, model.limits.bounds)
    adapter, top = model.adapter(fields.model), fields.top_logprobs
    tokens = fields.max_tokens if fields.max_completion_tokens is None else fields.max_completion_tokens
    if tokens == 0:
        raise refusal("max_tokens", "is 0, which leaves nothing to answer")
    if top is not None and not fields.logprobs:
        raise refusal("top_logprobs", "is given without logprobs: set logprobs to true")
    conversation = read_conversation(fields)
    form = model.call_form() if tools_of(conversation) else None
    prompt = model.prompt_of_messages(conversation)
    jobs = _generations(
        model,
        fields,
        [prompt],
        tokens or max(1, model.limits.room(len(prompt))),
        more_stops=model.chat_stops(),
        name=fields.request_id,
        adapter=adapter,
        top=(top or 0) if fields.logprobs else None,
        streams=fields.stream,
        strips=True,
        marks=() if form is None else form.marks,
    )
    return ChatReply(
        model=model,
        prompts=[prompt],
        generations=jobs,
        streams=fields.stream,
        fields=fields,
        conversation=conversation,
        form=form,
    )


def read_conversation(fields: ChatFields) -> Messages:
    """Conversation of a request, which offers its tools unless its tool_choice is "none". Raises RequestError."""
    if fields.tool_choice not in ("auto", "none"):
        raise refusal(
            "tool_choice",
            f"is {excerpt(fields.tool_choice)}, but this model calls tools of its own accord: choose auto or none",
        )
    messages, names = list[Message](), dict[str, str]()
    for place, turn in enumerate(fields.messages):
        section = f"messages[{place}]"
        message = _read_message(read_fields(MessageFields, turn, section=section), section)
        if message.role == "tool":
            if message.call_id not in names:
                raise refusal(f"{section}.tool_call_id", f"is {excerpt(message.call_id)}, the id of no call before it")
            message = replace(message, name=names[message.call_id])
        names |= {call.id: call.name for call in message.calls}
        messages.append(message)
    with _refused("tools"):
        tools = read_tools(fields.tools)
    if tools and not fields.parallel_tool_calls:
        raise refusal("parallel_tool_calls", "is False, but this model may write several calls in a turn: leave it out")
    return (replace(messages[0], tools=() if fields.tool_choice == "none" else tools), *messages[1:])


def _read_message(fields: MessageFields, section: str) -> Message:
    """Message for the chat template."""
    role: Role = "system" if fields.role == "developer" else fields.role
    if fields.function_call is not None:
        raise refusal(f"{section}.function_call", "is not supported here: give the call in tool_calls")
    with _refused(f"{section}.tool_calls"):
        named = role == "assistant" and fields.tool_calls
        calls = read_calls(fields.tool_calls, f"{section}.tool_calls") if named else ()
    if fields.content is None and not calls:
        raise refusal(f"{section}.content", "is missing: give a text")
    parts = fields.content or ""
    text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
    thinking = fields.reasoning_content or fields.reasoning if role == "assistant" else ""
    return Message(role, text, thinking, calls, call_id=fields.tool_call_id if role == "tool" else "")


@contextmanager
def _refused(field: str) -> Iterator[None]:
    """Context in which unusable values of a field are refused."""
    try:
        yield
    except Unusable as error:
        raise RequestError(f"{error}.", param=field) from error


def read_generate(body: object, model: ServedModel) -> GenerateReply:
    """Parse a request. Raises TutelageError if it is refused."""
    fields = read_fields(GenerateFields, body, model.limits.bounds)
    adapter, prompt, params = model.adapter(fields.model), fields.token_ids, fields.sampling_params
    tokens = DEFAULT_TOKENS if params.max_tokens is None else params.max_tokens
    model.limits.check_ids("token_ids", prompt)
    if not prompt:
        raise refusal("token_ids", "is empty: give at least one token")
    if fields.stream:
        raise refusal("stream", "is not supported here: use /v1/completions")
    if tokens == 0:
        raise refusal("sampling_params.max_tokens", "is 0, which leaves nothing to answer")
    jobs = _generations(model, params, [prompt], tokens, name=fields.request_id, adapter=adapter, top=params.logprobs)
    return GenerateReply(model=model, prompts=[prompt], generations=jobs, request_id=fields.request_id or uuid4().hex)


def _prompts(fields: CompletionsFields, model: ServedModel) -> list[tuple[int, ...]]:
    """One prompt or several, each a text or token ids."""
    body, prompts = fields.prompt, list[tuple[int, ...]]()
    several = isinstance(body, list) and body and isinstance(body[0], str | list)
    for each in body if several else [body]:
        if isinstance(each, str):
            prompts.append(model.prompt_of_text(each, special=fields.add_special_tokens))
        else:
            prompts.append(convert(Ids, each, "prompt"))
            model.limits.check_ids("prompt", prompts[-1])
    if not all(prompts):
        raise refusal("prompt", "is empty: give a text or token ids")
    model.limits.check_count("prompt", len(prompts), model.limits.prompts)
    return prompts


def _generations(
    model: ServedModel,
    fields: SamplingFields,
    prompts: Sequence[tuple[int, ...]],
    tokens: int,
    more_stops: Sequence[str] = (),
    **more: Any,
) -> list[Generation]:
    """One job per prompt, with completions of up to `tokens` tokens. Raises TutelageError if a prompt leaves no
    room."""
    stop = tuple(dict.fromkeys([fields.stop] if isinstance(fields.stop, str) else fields.stop))
    model.limits.check_count(f"{fields.section}stop", len(stop), MOST_STOPS)
    model.limits.check_ids(f"{fields.section}stop_token_ids", fields.stop_token_ids)
    for prompt in prompts:
        model.limits.check_context(len(prompt), tokens)
    model.check_stops((*stop, *more_stops))
    greedy = fields.temperature == 0  # always the most likely token, which no filter excludes
    sampling = config.Sampling(
        temperature=fields.temperature,
        top_k=0 if greedy else max(0, fields.top_k),
        top_p=1.0 if greedy else fields.top_p,
        min_p=0.0 if greedy else fields.min_p,
        max_new_tokens=tokens,
        stop=(*stop, *more_stops),
    )
    more |= {
        "sampling": sampling,
        "end_ids": frozenset() if fields.ignore_eos else model.end_ids,
        "n": fields.n,
        "seed": secrets.randbits(62) if fields.seed is None else fields.seed,
        "stop_ids": frozenset(fields.stop_token_ids),
    }
    return [Generation(prompt=prompt, **more) for prompt in prompts]
