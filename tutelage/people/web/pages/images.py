"""The images of a study, for its members only."""

from starlette.responses import Response

from tutelage.people.languages import Sentence
from tutelage.people.store.images import image_content
from tutelage.people.web.call import Call, Refusal


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
