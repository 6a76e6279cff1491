"""The images of a study on the pages: for its members, from the site itself."""

import re

from pictures import png

from tutelage.people import add_rater, create_study, start_session
from tutelage.people.web import create_app
from tutelage.people.web.app import HEADERS

from ...worlds import QUIET, add_pictures
from ..conftest import World


def test_members_of_the_study_get_its_images_with_their_type(world: World) -> None:
    shown, _ = add_pictures(world.store, world.study)
    for member in (world.rater(), world.reviewer(), world.owner()):
        reply = member.get(f"/images/{shown}")
        assert reply.content == png()
        assert reply.headers["content-type"] == "image/png"
        assert reply.headers["cache-control"].startswith("private,")
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert {name: reply.headers[name] for name in HEADERS} == HEADERS
    assert world.nobody().get(f"/images/{shown}").status_code == 401


def test_another_study_and_other_names_have_none(world: World) -> None:
    shown, _ = add_pictures(world.store, world.study)
    other = create_study(world.store, "other", plan=QUIET)
    stranger = world.nobody()
    stranger.session = start_session(world.store, add_rater(world.store, other.id, "stranger", role="owner").id)
    assert stranger.get(f"/images/{shown}").status_code == 404
    for name in ("none.png", shown.replace(".png", ".gif"), shown.upper(), "%2e%2e%2fstudy.sqlite"):
        assert world.rater().get(f"/images/{name}").status_code == 404, name


def test_a_question_shows_its_images_below_the_root_of_the_site(world: World) -> None:
    shown, drawn = add_pictures(world.store, world.study)
    world.app = create_app(world.store, public_url="https://example.org/rating")
    page = world.owner().get("/owner/items/pictures").text
    assert re.findall(r'<img src="([^"]*)" alt="([^"]*)" width="6" height="4">', page) == [
        (f"/images/{shown}", "a field"),
        (f"/images/{drawn}", "Image"),
    ]
    rater = world.rater()
    for _ in range(8):
        question = rater.next()["question"]
        if "What is this?" in question["messages"][0]["text"]:
            break
        rater.answer(question)
    assert f'src="/images/{shown}"' in question["messages"][0]["html"]
    assert sum(f'src="/images/{drawn}"' in response["html"] for response in question["responses"]) == 1
    assert all(response["text"] for response in question["responses"])
