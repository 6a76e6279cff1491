"""The use of a server in a study: completions that are kept with consent, feedback on them, and the page to chat on."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.study import SERVERS, CollectSettings, open_existing
from tutelage.people import Store, Study, Unavailable
from tutelage.people.languages import choose_language
from tutelage.people.store.completions import ServedCompletion
from tutelage.people.store.consents import text_hash
from tutelage.people.store.engine import DAY_MS
from tutelage.people.store.rater_erasure import Retention
from tutelage.people.store.studies import study_of
from tutelage.people.user_feedback import (
    OutdatedConsent,
    UnknownCompletion,
    UserFeedback,
    admit_user,
    consent_text,
    forget_user,
    give_feedback,
    is_in_share,
    keep_completion,
    refuse_other_kinds,
    user_pseudonym,
)
from tutelage.people.web.app import OPEN_PATHS, ChatPage
from tutelage.people.web.auth import Attempts
from tutelage.people.web.render import render
from tutelage.people.web.templating import wanted_languages
from tutelage.rollout.serving.http_requests import read_json
from tutelage.rollout.serving.protocol.request_fields import Flag, RequestError, Text, read_fields, refusal
from tutelage.rollout.serving.usage import Outcome
from tutelage.stats.split_test import Trial

_log = logging.getLogger(__name__)
MOST_BYTES = 1 << 20
"""Maximum size of feedback in bytes."""
LONGEST_USER = 500
THUMBS = {"up": True, "down": False}


class NamedUser(Struct, frozen=True):
    """The user of any request, as in OpenAI's API."""

    user: Text = ""


class UserFields(NamedUser, frozen=True):
    """Fields of a chat request that concern its use, as in OpenAI's API; other fields are the model's."""

    store: Flag = False
    metadata: Any = None
    n: Any = 1
    tools: Any = None


class FeedbackFields(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `/v1/feedback`."""

    completion: Text
    user: Text
    thumb: Text = ""
    better: Text | None = None
    preferred: Text | None = None


class ForgetFields(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request to forget a user."""

    user: Text


class HtmlFields(Struct, frozen=True, forbid_unknown_fields=True):
    """Text of a model, to be shown to a user."""

    text: Text
    user: Text = ""


@dataclass(frozen=True)
class StudyUse:
    """An admitted request: its user, by the application's id, who agreed to be kept if `rater_id` is not None."""

    usage: "StudyUsage"
    rater_id: int | None
    arm: str

    @property
    def candidate(self) -> bool:
        """Whether the candidate answers."""
        return self.arm == "b"

    def record(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Keep the completion; see `Use.record`."""
        return None if self.rater_id is None else self.usage.keep(self.rater_id, self.arm, outcome)


class StudyUsage:
    """The use of a server, in a study.

    Args:
        store, study: open database and the study.
        share, days: share of completions kept, and for how long.
        per_minute: maximum number of requests of a user, or of an address without one.
        trial: split test of a candidate, if any.
        model: name of the model on the page.
    """

    def __init__(
        self, store: Store, study: Study, *, share: float, days: float, per_minute: int, trial: Trial | None,
        model: str,
    ) -> None:  # fmt: skip
        self.store, self.study_id, self.share, self.days = store, study.id, share, days
        self.trial, self._secrets = trial, study
        self._attempts = Attempts(most=per_minute, seconds=60)
        self._page = ChatPage(store, study.id, model=model, days=days, share=share)
        self._retention = Retention(store, study.id, completion_days=days)
        self._retention.start()

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The page, and the routes of feedback."""
        return [
            Route("/v1/feedback", self.terms, methods=["GET"]),
            Route("/v1/feedback", self.receive, methods=["POST"]),
            Route("/v1/feedback", self.forget, methods=["DELETE"]),
            Route("/v1/feedback/html", self.html, methods=["POST"]),
            *self._page.routes,
        ]

    @property
    def open_paths(self) -> Sequence[str]:
        """The page itself, which asks for the key."""
        return OPEN_PATHS

    def close(self) -> None:
        """Close the database."""
        self._retention.close()
        self.store.close()

    async def admit(self, body: object, address: str) -> StudyUse | None:
        """See `Usage.admit`."""
        self.limit(body, address)
        fields = read_fields(UserFields, body)
        arm = self._arm(fields.user)
        if not fields.store:
            return StudyUse(self, None, arm) if arm else None
        if not fields.user:
            raise refusal("user", "is missing: what is kept with store needs the id of its user")
        if fields.n not in (None, 1):
            raise refusal("n", "must be 1 with store: feedback is about one completion")
        if fields.tools:
            raise refusal("tools", "cannot be offered with store: feedback is about texts")
        metadata = fields.metadata if isinstance(fields.metadata, dict) else {}
        rater = await asyncio.to_thread(self._agreed, fields.user, str(metadata.get("consent", "")))
        return StudyUse(self, rater, arm)

    def limit(self, body: object, address: str) -> None:
        """See `Usage.limit`."""
        user = read_fields(NamedUser, body).user
        if len(user) > LONGEST_USER:
            raise refusal("user", f"is longer than {counted(LONGEST_USER, 'character')}")
        who = f"user {user}" if user else f"address {address}"
        wait = self._attempts.wait(who)
        if wait:
            raise RequestError(
                f"There were too many requests of this user; repeat it in {counted(wait, 'second')}.",
                status=429, code="rate_limit_exceeded", wait=wait,
            )  # fmt: skip
        self._attempts.count(who)

    def keep(self, rater_id: int, arm: str, outcome: Outcome) -> Mapping[str, Any] | None:
        """Keep a completion if it is in the share; of another one, what a split test counts, without its texts. Returns
        until when feedback can be given on it, in seconds since 1970."""
        text = outcome.text if is_in_share(self._secrets, outcome.key, self.share) else None
        if text is None and not arm:
            return None
        served = ServedCompletion(
            outcome.key, outcome.messages, text, outcome.sampler, outcome.finished, outcome.seconds,
            self.trial.name if self.trial and arm else "", arm, outcome.failed,
        )  # fmt: skip
        try:
            if study_of(self.store, self.study_id).state != "open":
                return None
            stored = keep_completion(self.store, self.study_id, rater_id, served)
        except Unavailable as error:  # the answer matters more than what is kept of it
            _log.warning("a completion is not kept: %s", error)
            return None
        until = (self.store.now() + self.days * DAY_MS) // 1000
        return {"until": int(until)} if stored and served.text is not None else None

    async def terms(self, request: Request) -> Response:
        """The text that users agree to, in the language of the request; what is kept, and for how long."""
        study = await asyncio.to_thread(_refused, study_of, self.store, self.study_id)
        language = choose_language(study.languages, wanted_languages(request))
        text = await asyncio.to_thread(_refused, consent_text, self.store, self.study_id, language)
        consent = {"sha256": text_hash(text), "language": language, "text": text, "html": render(text, language)}
        return JSONResponse({"consent": consent, "share": self.share, "days": self.days})

    async def receive(self, request: Request) -> Response:
        """Store feedback; it is on disk when the reply is sent."""
        fields = read_fields(FeedbackFields, await self._body(request))
        if fields.thumb not in ("", *THUMBS):
            raise refusal("thumb", f"must be up or down, not {fields.thumb[:20]!r}")
        feedback = UserFeedback(fields.completion, THUMBS.get(fields.thumb), fields.better, fields.preferred)
        await asyncio.to_thread(self._give, fields.user, feedback)
        return JSONResponse({"object": "feedback", "completion": fields.completion})

    async def forget(self, request: Request) -> Response:
        """Erase a user."""
        fields = read_fields(ForgetFields, await self._body(request))
        await asyncio.to_thread(_refused, forget_user, self.store, self.study_id, fields.user)
        return JSONResponse({"object": "feedback.user", "forgotten": True})

    async def html(self, request: Request) -> Response:
        """The text of a model as HTML that is safe to show."""
        fields = read_fields(HtmlFields, await self._body(request))
        language = choose_language((), wanted_languages(request))
        return JSONResponse({"html": await asyncio.to_thread(render, fields.text, language)})

    async def _body(self, request: Request) -> object:
        """The body of a request within the limit of its user."""
        body = await read_json(request, MOST_BYTES)
        self.limit(body, request.client.host if request.client else "")
        return body

    def _arm(self, user: str) -> str:
        """The user's arm of the split test; "" without one."""
        if self.trial is None or not user:
            return ""
        return self.trial.arm(user_pseudonym(self._secrets, user))

    def _agreed(self, user: str, consent: str) -> int | None:
        """The user as a rater; None if the database cannot be reached, so that nothing is kept."""
        try:
            return int(_refused(admit_user, self.store, self.study_id, user, consent).id)
        except RequestError as error:
            if error.status != 503:
                raise
            _log.warning("a completion is not kept: %s", error)
            return None

    def _give(self, user: str, feedback: UserFeedback) -> None:
        _refused(give_feedback, self.store, self.study_id, user, feedback, days=self.days)


def open_use(address: str, name: str) -> tuple[Store, Study]:
    """Open the study that takes feedback. Raises TutelageError if there is none, or if it asks another kind of
    question."""
    place = CollectSettings(study=name, db=address) if address.startswith(SERVERS) else None
    store, study = open_existing(place or CollectSettings(study=str(Path(address)), name=name))
    try:
        refuse_other_kinds(study)
    except TutelageError:
        store.close()
        raise
    return store, study


def _refused(function: Any, *args: Any, **more: Any) -> Any:
    """Call a function of the study, and convert its errors to those of a request."""
    try:
        return function(*args, **more)
    except OutdatedConsent as error:
        raise RequestError(
            f"{error} GET /v1/feedback has it; send its sha256 as metadata.consent.",
            param="metadata.consent", code="consent_outdated",
        ) from error  # fmt: skip
    except UnknownCompletion as error:
        raise RequestError(str(error), status=404, param="completion", code="completion_not_found") from error
    except Unavailable as error:
        raise RequestError(str(error), status=503, code="unavailable") from error
