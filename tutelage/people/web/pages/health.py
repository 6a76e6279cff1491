"""Whether the server works, for whoever watches over it."""

from starlette.responses import JSONResponse, Response

from tutelage.people import list_studies
from tutelage.people.web.call import Call


def health(call: Call) -> Response:
    """Say that the database can be read; where it cannot, the status is 503. Nothing of a study is told."""
    list_studies(call.store)
    return JSONResponse({"status": "ok"})
