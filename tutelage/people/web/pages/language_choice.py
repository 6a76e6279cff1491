"""The rater's own choice among the languages of a study."""

from starlette.responses import Response

from tutelage.people.languages import LANGUAGES, Sentence
from tutelage.people.web.call import Call, Refusal, see
from tutelage.people.web.languages import language_cookie


def choose(call: Call) -> Response:
    """Remember the language in the browser, and go back to the page where it was chosen."""
    code, place = call.text("language"), call.text("to")
    if code not in LANGUAGES:
        raise Refusal(
            400,
            Sentence(
                "There is no language '%(code)s' here; choose %(known)s.",
                code=code[:20],
                known=", ".join(LANGUAGES),
            ),
        )
    ours = place.startswith("/") and not place.startswith(("//", "/\\"))
    response = see(place if ours else "/")
    response.headers["set-cookie"] = language_cookie(code, secure=call.site.secure)
    return response
