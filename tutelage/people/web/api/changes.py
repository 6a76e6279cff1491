"""Operations of a study as addresses of the API: `POST /operations/NAME` with the values that change."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, UnsetType

from tutelage.people.operations import MissingSettings, Operation, Parameter
from tutelage.people.validation import FieldError
from tutelage.people.web.api.admitting import ApiCall, ApiRefusal, ApiRoute


def operation_route(operation: Operation[Any]) -> ApiRoute:
    """The address of an operation. It takes any of its fields, and answers with the settings in force."""

    def change(call: ApiCall) -> object:
        given = msgspec.structs.asdict(call.data)
        values = {name: value for name, value in given.items() if value is not msgspec.UNSET}
        try:
            return operation.amend(call.store, call.study.id, values, call.token.actor)
        except MissingSettings as error:
            raise ApiRefusal(400, f"There are no settings yet: give {error}.", "the body") from error
        except FieldError as error:
            raise ApiRefusal(400, str(error), f"'{error.field}' in the body") from error

    changes = msgspec.defstruct(
        f"{operation.settings.__name__}Changes",
        [(each.name, _type(each), msgspec.UNSET) for each in operation.parameters],
        forbid_unknown_fields=True,
        kw_only=True,
    )
    return ApiRoute(
        "POST", f"/operations/{operation.name}", operation.right, operation.name, operation.about, change,
        operation.settings, data=changes,
    )  # fmt: skip


def _type(asked: Parameter) -> Any:
    """The type of a field in the body, with its range and its text for the description."""
    limits = asked.limits
    ranged = asked.type if limits is None else Annotated[asked.type, Meta(ge=limits.least, le=limits.most)]
    return Annotated[ranged | None if asked.optional else ranged, Meta(description=asked.text)] | UnsetType
