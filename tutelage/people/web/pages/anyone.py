"""Pages for every role: the health check for monitoring and the choice of language, which need no session, and the
images of a study."""

from starlette.responses import JSONResponse, Response

from tutelage.people import list_studies
from tutelage.people.languages import LANGUAGES, Sentence
from tutelage.people.store.additions import image_content
from tutelage.people.store.engine import check_room
from tutelage.people.web.call import Call, Refusal, see
from tutelage.people.web.templating import language_cookie


def health(call: Call) -> Response:
    """Report whether the database is readable and has room for answers; status 503 if not. Reveals nothing about
    studies."""
    list_studies(call.store)
    check_room(call.store)
    return JSONResponse({"status": "ok"})


def choose_language(call: Call) -> Response:
    """Save the language in a cookie and redirect to the page it was chosen on."""
    code, place = call.text("language"), call.text("to")
    if code not in LANGUAGES:
        raise Refusal(
            400,
            Sentence(
                "There is no language '%(code)s' here; choose %(known)s.", code=code[:20], known=", ".join(LANGUAGES)
            ),
        )
    ours = place.startswith("/") and not place.startswith(("//", "/\\"))
    response = see(place if ours else "/")
    response.headers["set-cookie"] = language_cookie(code, secure=call.site.secure)
    return response


def image(call: Call) -> Response:
    """An image. Its name has the hash of its content, so that a browser need not ask for it again."""
    name = call.path["name"]
    content = image_content(call.store, call.here.id, name)
    if content is None:
        raise Refusal(404, Sentence("There is no such page."))
    headers = {
        "cache-control": "private, max-age=31536000, immutable",
        "content-disposition": "inline",
        "cross-origin-resource-policy": "same-origin",
    }
    return Response(content, media_type=f"image/{name.rpartition('.')[2]}", headers=headers)
