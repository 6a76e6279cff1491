"""Health check for monitoring."""

from starlette.responses import JSONResponse, Response

from tutelage.people import list_studies
from tutelage.people.web.call import Call


def health(call: Call) -> Response:
    """Report whether the database is readable; status 503 if not. Reveals nothing about studies."""
    list_studies(call.store)
    return JSONResponse({"status": "ok"})
