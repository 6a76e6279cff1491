"""Operations of a study, each declared once for the command line, the web form and the API.

The settings of an operation are a dataclass, whose types, number ranges (`validation.number`) and field docstrings
apply to all three interfaces. An `Amendment` changes settings in force, a `Grant` creates something with a secret that
is shown once, a `TableImport` stores the rows of a table; exports are implemented separately for each interface.
Functions are named as module:name and imported when called.
"""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from tutelage.base.config.hints import field_texts
from tutelage.people.recruitment import Recruitment
from tutelage.people.selection import Selection
from tutelage.people.settings import Consent, Credential, NewInvitation, NewToken, NewWebhook, Plan, Right
from tutelage.people.validation import NumberRange, limits_of
from tutelage.people.vote_mapping import VoteMapping

if TYPE_CHECKING:
    from tutelage.data.tables import Table
    from tutelage.people.store.engine import Store

Settings = TypeVar("Settings")


class Parameter(NamedTuple):
    """A field of the settings of an operation: its type without None, whether it may be None, the range of a number,
    and its docstring. `file`: the command line reads the text from a file; `flag`: the name on the command line, which
    is repeated for each value of a tuple if `append`; `people`: not available to programs, which use the default."""

    name: str
    type: Any
    optional: bool
    default: Any
    limits: NumberRange | None
    text: str
    file: bool
    flag: str
    append: bool
    people: bool

    @property
    def required(self) -> bool:
        """Whether the parameter has no default."""
        return self.default is dataclasses.MISSING


@dataclass(frozen=True)
class Operation(Generic[Settings]):
    """An operation for owners and for tokens with the `right`; no program may run it if `right` is None."""

    name: str
    about: str
    settings: type[Settings]
    right: Right | None = dataclasses.field(default="manage", kw_only=True)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The fields of the settings."""
        hints, texts = get_type_hints(self.settings), field_texts(self.settings)
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
                bool(field.metadata.get("append")),
                bool(field.metadata.get("people")),
            )
            for field in dataclasses.fields(self.settings)  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class Amendment(Operation[Settings]):
    """An operation that replaces the settings in force: `current(store, study_id)` returns them or None,
    `change(store, study_id, settings, actor=...)` replaces them."""

    current: str
    change: str

    def read(self, store: "Store", study_id: int) -> Settings | None:
        """The settings in force; None if there are none yet."""
        settings: Settings | None = _function(self.current)(store, study_id)
        return settings

    def run(self, store: "Store", study_id: int, settings: Settings, actor: str) -> None:
        """Put the settings in force, and record the actor. Raises FieldError if a value is invalid."""
        _function(self.change)(store, study_id, settings, actor=actor)

    def amend(self, store: "Store", study_id: int, values: Mapping[str, Any], actor: str) -> Settings:
        """Change these values of the settings in force, if they differ, and return the resulting settings.

        Raises:
            MissingSettings: no settings are in force, and a value without a default is missing.
            FieldError: a value is invalid.
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
    """An operation that creates something with a secret: `create(store, study_id, settings, actor=...)` returns its
    `Credential`, `records(store, study_id)` lists the grants, and `revoke(store, study_id, number, actor=...)` revokes
    one. `path` is the prefix of the URL path that a secret gives access to, if any."""

    create: str
    records: str
    revoke: str
    path: str = dataclasses.field(default="", kw_only=True)

    def run(self, store: "Store", study_id: int, settings: Settings, actor: str) -> Credential:
        """Create a grant, and record the actor. Raises FieldError if a value is invalid."""
        credential: Credential = _function(self.create)(store, study_id, settings, actor=actor)
        return credential

    def list(self, store: "Store", study_id: int) -> Sequence[Any]:
        """The grants of the study."""
        records: Sequence[Any] = _function(self.records)(store, study_id)
        return records

    @property
    def record_type(self) -> Any:
        """The type of `list`'s result."""
        return get_type_hints(_function(self.records))["return"]

    def end(self, store: "Store", study_id: int, number: int, actor: str) -> None:
        """Revoke a grant. Raises TutelageError if the study has none with this number."""
        _function(self.revoke)(store, study_id, number, actor=actor)


@dataclass(frozen=True)
class TableImport(Operation[Settings]):
    """An operation that stores the rows of a table. `guess(table, **given)` returns the settings with these values and
    guesses the others from the table; `preview(store, study_id, table, settings)` returns the result that
    `take(store, study_id, table, settings, actor=...)` would have, and stores nothing."""

    guess: str
    preview: str
    take: str

    def settings_for(self, table: "Table", given: Mapping[str, Any]) -> Settings:
        """The settings of an import: the values `given`, and a guess for the others. Raises FieldError if a value is
        invalid."""
        settings: Settings = _function(self.guess)(table, **given)
        return settings

    def look(self, store: "Store", study_id: int, table: "Table", settings: Settings) -> Any:
        """The result that the import would have. Raises FieldError if a setting does not fit the table."""
        return _function(self.preview)(store, study_id, table, settings)

    def run(self, store: "Store", study_id: int, table: "Table", settings: Settings, actor: str) -> Any:
        """Store the rows, all or none, and record the actor. Returns a report.

        Raises:
            FieldError: a setting does not fit the table.
            TutelageError: rows cannot be used.
        """
        return _function(self.take)(store, study_id, table, settings, actor=actor)

    @property
    def preview_type(self) -> Any:
        """The type of `look`'s result."""
        return get_type_hints(_function(self.preview))["return"]

    @property
    def report_type(self) -> Any:
        """The type of `run`'s result."""
        return get_type_hints(_function(self.take))["return"]


class MissingSettings(Exception):
    """The settings of an operation are incomplete: `parameters` have no default and no value yet."""

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


RECRUIT = Amendment(
    "recruit",
    "Recruit raters on Prolific, Mechanical Turk or SONA; omitted settings stay unchanged.",
    Recruitment,
    "store.visits:recruitment_of",
    "store.visits:recruit",
)
CONSENT = Amendment(
    "consent",
    "Set the consent text as a new version; omitted settings stay unchanged.",
    Consent,
    "store.consents:present_consent",
    "store.consents:ask_consent",
)
PLAN = Amendment(
    "plan",
    "Change how questions are assigned, from now on; omitted settings stay unchanged.",
    Plan,
    "store.studies:plan_of",
    "store.studies:replan",
)
TOKEN = Grant(
    "token",
    "Create an API token and show it once: only its hash is stored.",
    NewToken,
    "store.api_tokens:create_token",
    "store.api_tokens:list_tokens",
    "store.api_tokens:revoke_token",
    right=None,
)
WEBHOOK = Grant(
    "webhook",
    "Add a webhook for events of the study, and show the secret that signs its messages.",
    NewWebhook,
    "store.webhooks:add_webhook",
    "store.webhooks:list_webhooks",
    "store.webhooks:remove_webhook",
)
INVITE = Grant(
    "invite",
    "Create an invitation link and show it once.",
    NewInvitation,
    "store.access:create_invite",
    "store.access:list_invites",
    "store.access:revoke_invite",
    path="/join/",
)
EXPORT = Operation(
    "export",
    "Export preferences, votes and a manifest that accounts for every vote into a new folder.",
    Selection,
    right="export",
)
IMPORT = TableImport(
    "import",
    "Import the votes of a table. An omitted column is one with a usual name.",
    VoteMapping,
    "vote_mapping:guess_mapping",
    "vote_import:preview_import",
    "vote_import:import_votes",
)
AMENDMENTS: tuple[Amendment[Any], ...] = (RECRUIT, CONSENT, PLAN)
GRANTS: tuple[Grant[Any], ...] = (TOKEN, WEBHOOK, INVITE)
IMPORTS: tuple[TableImport[Any], ...] = (IMPORT,)
