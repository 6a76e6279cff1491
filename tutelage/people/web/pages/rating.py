"""The rater's page, and its JSON endpoints for questions, votes and live conversations.

The data for raters is built here field by field: the texts, and nothing about their origin, nor which model of a live
conversation is on which side.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields

from starlette.responses import JSONResponse, Response, StreamingResponse

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Answer,
    Assignment,
    feedback,
    get_rater,
    recent_answers,
    release,
    renew,
    reserve_item,
    submit,
    why_nothing,
    write_note,
)
from tutelage.people.answers import FLAGS, correction_from, correction_row, displayed, span_rows, spans_from
from tutelage.people.kinds.kind import Kind
from tutelage.people.languages import Sentence, say
from tutelage.people.live_conversation import Talk, end_conversation, next_step, open_turn
from tutelage.people.live_conversation import say as say_in
from tutelage.people.rater_progress import rater_progress
from tutelage.people.remuneration import finish
from tutelage.people.store.conversations import find_live_models
from tutelage.people.store.raters import DECIDING
from tutelage.people.web.call import Call, Refusal, see, sentence
from tutelage.people.web.pages.participation import must_agree
from tutelage.people.web.render import render
from tutelage.people.web.traces import Html, messages_data, steps_data

Data = Mapping[str, object]


def integer(data: Data, name: str, default: int | None = None) -> int:
    """A whole number of at most 15 digits. Raises Refusal for anything else."""
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 10**15:
        raise Refusal(400, f"'{name}' must be a whole number.")
    return value


def optional_integer(data: Data, name: str) -> int | None:
    return None if data.get(name) is None else integer(data, name)


def text(data: Data, name: str, default: str | None = None) -> str:
    """A text that can be encoded as UTF-8. Raises Refusal for anything else."""
    value = data.get(name, default)
    if not isinstance(value, str) or _unwritable(value):
        raise Refusal(400, f"'{name}' must be text.")
    return value


def integers(data: Data, name: str) -> tuple[int, ...]:
    return tuple(integer({name: value}, name) for value in _list(data, name))


def texts(data: Data, name: str) -> tuple[str, ...]:
    return tuple(text({name: value}, name) for value in _list(data, name))


def pairs_of_text(data: Data, name: str) -> dict[str, str]:
    value = data.get(name, {})
    if not isinstance(value, dict):
        raise Refusal(400, f"'{name}' must be an object.")
    return {text({name: key}, name): text({name: each}, name) for key, each in value.items()}


def _list(data: Data, name: str) -> list[object]:
    value = data.get(name, [])
    if not isinstance(value, list) or len(value) > 100:
        raise Refusal(400, f"'{name}' must be a list of at most 100 values.")
    return value


def _unwritable(value: str) -> bool:
    """Whether the text holds a lone surrogate or a NUL character, which databases reject."""
    return "\0" in value or any("\ud800" <= character <= "\udfff" for character in value)


SKIP_REASONS = (
    Sentence("I do not know enough about this"),
    Sentence("The prompt makes no sense to me"),
    Sentence("I cannot read these responses"),
    Sentence("I would rather not judge this"),
)
FIELDS = {field.name for field in fields(Answer)} - {"content"} | {"assignment"}
"""The fields that are sent with every kind of answer."""
LOOK_BACK = 20


def screen(call: Call) -> Response:
    """The rater's page, whose script fetches the questions."""
    if must_agree(call.me, call.here):
        return see("/welcome")
    item = call.text("item")
    if item and call.me.role not in DECIDING:
        raise Refusal(403, Sentence("Only an owner or reviewer of the study chooses what to judge."))
    if not item and call.me.role == "reviewer":
        return see("/owner/items?state=disagreed")
    template = f"kinds/{call.here.kind.name}.html"
    live = find_live_models(call.store, call.here.id) is not None and not item
    return call.page(template, flags=FLAGS, skip_reasons=SKIP_REASONS, item=item, live=live)


def following(call: Call) -> Response:
    """The next question, reserved for the rater; the state of a live conversation; or the reason why there is none."""
    refuse_strangers(call)
    item = text(call.data, "item", "")
    if not item and call.me.role == "reviewer":
        raise Refusal(400, Sentence("A reviewer chooses the item to judge, on the page of the item."))
    if item:
        step: Assignment | Talk | None = reserve_item(call.store, call.me.id, item)
    else:
        step = _next(call, integers(call.data, "besides"))
    return _json(
        call,
        question=question_data(step, call.html, call.language) if isinstance(step, Assignment) else None,
        talk=talk_data(step, call.html, call.language) if isinstance(step, Talk) else None,
        why="" if step is not None else say(why_nothing(call.store, call.me.id), call.language),
        finish="" if step is not None or call.data.get("besides") else _finish(call),
    )


def _finish(call: Call) -> str:
    """The page that ends the visit of a rater from a recruiting platform, if it is over; else empty."""
    ending = finish(call.store, call.me.id)
    return "/finish" if ending is not None and ending.visit.state != "active" else ""


def receive(call: Call) -> Response:
    """Store an answer. Returns its receipt and, in training, feedback."""
    refuse_strangers(call)
    assignment = integer(call.data, "assignment")
    receipt = submit(call.store, assignment, answer_from(call.data, call.here.kind), rater_id=call.me.id)
    taught = feedback(call.store, assignment)
    return _json(
        call,
        revision=receipt.revision,
        extra=receipt.extra,
        known=receipt.known,
        feedback=None
        if taught is None
        else {"expected": taught.expected, "right": taught.right, "html": render(taught.explanation, call.language)},
    )


def keep(call: Call) -> Response:
    """Renew the leases of the questions on the rater's screen."""
    return JSONResponse({"lease_ends": renew(call.store, call.me.id)})


def recent(call: Call) -> Response:
    """The rater's latest answers, which can still be changed, with their questions, newest first."""
    answers = recent_answers(call.store, call.me.id, LOOK_BACK)
    return JSONResponse(
        {
            "answers": [
                {
                    "question": question_data(each.assignment, call.html, call.language),
                    "answer": answer_data(each.answer),
                }
                for each in answers
                if each.assignment.version == call.here.version and not each.assignment.training
            ]
        }
    )


def note(call: Call) -> Response:
    """Store a rater's note to the owners, unless the rater has written many in the last minutes."""
    rater = str(call.me.id)
    wait = call.site.notes.wait(rater)
    if wait:
        much = Sentence("You have sent many notes; the owners see all of them. Send the next in a few minutes.")
        raise Refusal(429, much, retry_after=wait)
    write_note(call.store, call.me.id, text(call.data, "text"))
    call.site.notes.count(rater)
    return JSONResponse({"kept": True})


def question_data(question: Assignment, html: Html, language: str) -> dict[str, object]:
    """The data of a question that a rater may see: no item key, models, known answer or points."""
    return {
        "id": question.id,
        "training": question.training,
        "messages": messages_data(question.messages, html, language),
        "responses": [
            {"html": html(text), "text": text} | ({"steps": steps_data(steps, html, language)} if steps else {})
            for text, steps in zip(question.texts, question.steps, strict=True)
        ],
        "criteria": [criterion.text for criterion in question.rubric],
    }


def talk_data(talk: Talk, html: Html, language: str) -> dict[str, object]:
    """The state of a conversation that a rater may see."""
    return {
        "conversation": talk.conversation,
        "turn": talk.turn,
        "turns": talk.turns,
        "messages": messages_data(talk.messages, html, language),
        "openings": list(talk.openings),
        "writing": talk.writing,
    }


def answer_data(answer: Answer) -> dict[str, object]:
    """An answer as JSON; inverse of `answer_from`."""
    return {
        **displayed(answer),
        "criteria": dict(answer.criteria),
        "flags": list(answer.flags),
        "reason": answer.reason,
        "correction": correction_row(answer.correction),
        "spans": span_rows(answer.spans),
    }


def answer_from(data: Mapping[str, object], kind: Kind) -> Answer:
    """The submitted answer: the common fields, and those of its kind. Only types are checked here; the submission
    validates the values."""
    return Answer(
        text(data, "choice"),
        integer(data, "strength", 0),
        _content(data, kind),
        pairs_of_text(data, "criteria"),
        _flags(data),
        text(data, "reason", ""),
        optional_integer(data, "active_ms"),
        optional_integer(data, "wall_ms"),
        integer(data, "changes", 0),
        text(data, "client", "")[:100],
        text(data, "key"),
        correction_from(data.get("correction")),
        spans_from(data.get("spans", ())),
    )


def _content(data: Mapping[str, object], kind: Kind) -> Mapping[str, object]:
    """The fields that belong to the kind."""
    more = {name: value for name, value in data.items() if name not in FIELDS}
    unknown = [name for name in more if name not in kind.traits.parts]
    if unknown:
        raise Refusal(400, f"An answer to this question has no field '{unknown[0][:50]}'.")
    return more


def _flags(data: Mapping[str, object]) -> tuple[str, ...]:
    flags = texts(data, "flags")
    unknown = [flag[:50] for flag in flags if flag not in FLAGS]
    if unknown:
        raise Refusal(400, f"The flag '{unknown[0]}' is unknown; the flags are {', '.join(FLAGS)}.")
    return flags


def _next(call: Call, besides: tuple[int, ...]) -> Assignment | Talk | None:
    """The next question in its current version. A question reserved under an older version and not shown since is
    replaced."""
    step = next_step(call.store, call.me.id, besides=besides)
    if isinstance(step, Assignment) and step.version != call.here.version:
        release(call.store, call.me.id, besides=besides)
        step = next_step(call.store, call.me.id, besides=besides)
    return step


def refuse_strangers(call: Call) -> None:
    """Refuse a rater who has not consented."""
    if must_agree(call.me, call.here):
        raise Refusal(403, Sentence("Agree to take part first, on the page /welcome."))


def _json(call: Call, **more: object) -> Response:
    """A JSON response to the rater's page, with the common part: progress and the version of the question."""
    return JSONResponse(
        {
            "progress": asdict(rater_progress(call.store, call.me.id)),
            "state": get_rater(call.store, call.me.id).state,
            "version": call.here.version,
            **more,
        }
    )


def send(call: Call) -> Response:
    """Store a message and return its turn."""
    refuse_strangers(call)
    turn = say_in(
        call.store,
        call.me.id,
        optional_integer(call.data, "conversation"),
        text(call.data, "text"),
        text(call.data, "key"),
        tools=call.site.streams.schemas,
    )
    return JSONResponse(
        {
            "turn": turn.id,
            "conversation": turn.conversation_id,
            "number": turn.number,
            "messages": messages_data(turn.messages, call.html, call.language),
        }
    )


def listen(call: Call) -> Response:
    """The responses to a turn as server-sent events (see `streams`)."""
    refuse_strangers(call)
    try:
        opened = open_turn(call.store, _number(call), call.me.id)
    except TutelageError as error:
        raise Refusal(404, sentence(error)) from error
    return StreamingResponse(
        call.site.streams.events(opened.turn, call.language),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no"},  # keeps proxies from buffering the stream
    )


def end(call: Call) -> Response:
    """End the conversation early."""
    refuse_strangers(call)
    end_conversation(call.store, call.me.id, _number(call))
    return JSONResponse({"ended": True})


def _number(call: Call) -> int:
    if not call.number("number"):
        raise Refusal(404, Sentence("There is no such conversation."))
    return call.number("number")
