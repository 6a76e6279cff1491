"""Refusals in OpenAI's format."""

from collections.abc import Mapping
from typing import Any

from tutelage.base.errors import TutelageError

TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    503: "overloaded_error",
}
"""The type of an error by its status; others are invalid requests, or from 500 on errors of the server."""


class RequestError(TutelageError):
    """A request that is refused with an HTTP status. `param` is the field at fault, `code` a name for programs."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


def error_body(
    message: str, status: int, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The body of an error."""
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
