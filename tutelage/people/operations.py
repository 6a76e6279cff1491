"""Operations of a study: each is declared once, and the command line, the form of its page and the API follow from it.

The settings of an operation are a dataclass: its types, the ranges of its numbers (`fields.number`) and the texts below
its fields are those of every surface. An `Amendment` changes settings in force, a `Grant` creates something with a
secret that is shown once; an export comes in a form of its own on each surface. Functions are named as module:name,
and imported when they are called.
"""

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from tutelage.people.grants import Credential, NewInvitation, NewToken, NewWebhook, Right
from tutelage.people.recruitment import Recruitment
from tutelage.people.selection import Selection
from tutelage.people.settings import Consent, Plan
from tutelage.people.validation import NumberRange, limits_of

if TYPE_CHECKING:
    from tutelage.people.store.engine import Store

Settings = TypeVar("Settings")


class Parameter(NamedTuple):
    """A field of the settings of an operation: its type without None, whether it may be None, its range if it is a
    number, and the text below it. A `file` is a long text, which the command line reads from a file; `flag` is its name
    there; what only `people` choose is left at its default by programs."""

    name: str
    type: Any
    optional: bool
    default: Any
    limits: NumberRange | None
    text: str
    file: bool
    flag: str
    people: bool

    @property
    def required(self) -> bool:
        """Whether the settings cannot be made without it."""
        return self.default is dataclasses.MISSING


@dataclass(frozen=True)
class Operation(Generic[Settings]):
    """An operation, which needs an owner or a token with the `right`; None where no program may."""

    name: str
    about: str
    settings: type[Settings]
    right: Right | None = dataclasses.field(default="manage", kw_only=True)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The fields of the settings."""
        hints, texts = get_type_hints(self.settings), _texts(self.settings)
        return tuple(
            Parameter(
                field.name,
                _plain(hints[field.name]),
                type(None) in get_args(hints[field.name]),
                field.default,
                limits_of(field),
                texts.get(field.name, ""),
                bool(field.metadata.get("file")),
                field.metadata.get("flag", field.name),
                bool(field.metadata.get("people")),
            )
            for field in dataclasses.fields(self.settings)  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class Amendment(Operation[Settings]):
    """Changes settings in force: `current(store, study_id)` returns them or None, `change(store, study_id, settings,
    actor=...)` puts others in force."""

    current: str
    change: str

    def read(self, store: "Store", study_id: int) -> Settings | None:
        """The settings in force; None where there are none yet."""
        found: Settings | None = _function(self.current)(store, study_id)
        return found

    def run(self, store: "Store", study_id: int, settings: Settings, actor: str) -> None:
        """Put the settings in force, and record who did.

        Raises:
            FieldError: a value cannot be used.
        """
        _function(self.change)(store, study_id, settings, actor=actor)

    def amend(self, store: "Store", study_id: int, values: Mapping[str, Any], actor: str) -> Settings:
        """Put the settings in force with these values in place of theirs, where that changes something; returns them.

        Raises:
            MissingSettings: there are none in force, and one that has no default is not among the values.
            FieldError: a value cannot be used.
        """
        before = self.read(store, study_id)
        if before is None:
            missing = tuple(each for each in self.parameters if each.required and each.name not in values)
            if missing:
                raise MissingSettings(missing)
            after = self.settings(**values)
        else:
            after = dataclasses.replace(before, **values)  # type: ignore[type-var]
        if after != before:
            self.run(store, study_id, after, actor)
        return after


@dataclass(frozen=True)
class Grant(Operation[Settings]):
    """Creates something with a secret: `create(store, study_id, settings, actor=...)` returns its `Credential`,
    `records(store, study_id)` what was created, and `revoke(store, study_id, number, actor=...)` ends one of them.
    `path` begins the path of the site that a secret opens, if it opens one."""

    create: str
    records: str
    revoke: str
    path: str = dataclasses.field(default="", kw_only=True)

    def run(self, store: "Store", study_id: int, settings: Settings, actor: str) -> Credential:
        """Create one, and record who did.

        Raises:
            FieldError: a value cannot be used.
        """
        credential: Credential = _function(self.create)(store, study_id, settings, actor=actor)
        return credential

    def list(self, store: "Store", study_id: int) -> Sequence[Any]:
        """What was created in the study."""
        records: Sequence[Any] = _function(self.records)(store, study_id)
        return records

    @property
    def record_type(self) -> Any:
        """The type of `list`'s result."""
        return get_type_hints(_function(self.records))["return"]

    def end(self, store: "Store", study_id: int, number: int, actor: str) -> None:
        """End one. Raises TutelageError where the study has none of that number."""
        _function(self.revoke)(store, study_id, number, actor=actor)


class MissingSettings(Exception):
    """The first change of an operation lacks `parameters` without a default."""

    def __init__(self, parameters: tuple[Parameter, ...]) -> None:
        super().__init__(", ".join(each.name for each in parameters))
        self.parameters = parameters


def _function(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"tutelage.people.{module}"), name)


def _plain(hint: Any) -> Any:
    """The type without None."""
    members = [member for member in get_args(hint) if member is not types.NoneType]
    return members[0] if type(None) in get_args(hint) and len(members) == 1 else hint


def _texts(settings: type) -> dict[str, str]:
    """The texts below the fields of a dataclass, on one line each."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        statement.target.id: " ".join(str(below.value.value).split())
        for statement, below in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


RECRUIT = Amendment(
    "recruit",
    "Recruit raters on Prolific, Mechanical Turk or SONA; what is not given stays as it is.",
    Recruitment,
    "store.visits:recruitment_of",
    "store.visits:recruit",
)
CONSENT = Amendment(
    "consent",
    "Set what raters agree to, as a new version; what is not given stays as it is.",
    Consent,
    "store.consents:present_consent",
    "store.consents:ask_consent",
)
PLAN = Amendment(
    "plan",
    "Set how the questions are distributed, from now on; what is not given stays as it is.",
    Plan,
    "store.studies:plan_of",
    "store.studies:replan",
)
TOKEN = Grant(
    "token",
    "Make a token for a program that uses the API, and show it once: only its hash is kept.",
    NewToken,
    "store.api_tokens:create_token",
    "store.api_tokens:list_tokens",
    "store.api_tokens:revoke_token",
    right=None,
)
WEBHOOK = Grant(
    "webhook",
    "Tell an address what happens in the study, and show the secret that messages are signed with.",
    NewWebhook,
    "store.webhooks:add_webhook",
    "store.webhooks:list_webhooks",
    "store.webhooks:remove_webhook",
)
INVITE = Grant(
    "invite",
    "Make a link that lets somebody in, and show it once.",
    NewInvitation,
    "store.access:create_invite",
    "store.access:list_invites",
    "store.access:revoke_invite",
    path="/join/",
)
EXPORT = Operation(
    "export",
    "Write preferences, votes and a manifest that accounts for every vote into a new folder.",
    Selection,
    right="export",
)
AMENDMENTS: tuple[Amendment[Any], ...] = (RECRUIT, CONSENT, PLAN)
GRANTS: tuple[Grant[Any], ...] = (TOKEN, WEBHOOK, INVITE)
