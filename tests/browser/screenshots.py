"""Pictures of both screens for the documentation; in the folder `tests`: `python -m browser.screenshots [NAME …]`."""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from people.sites import serving
from playwright.sync_api import Browser, FilePayload, Page, sync_playwright
from scripted_chat import Scripted, saying
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tutelage.data.transport import Unanswered
from tutelage.people import (
    Store,
    Study,
    add_rater,
    backup,
    create_invite,
    create_study,
    list_raters,
    list_studies,
    open_store,
    open_study,
)
from tutelage.people.live_conversation import Models
from tutelage.people.recruitment import Recruitment, Visitor
from tutelage.people.settings import Consent, NewInvitation, NewToken, NewWebhook
from tutelage.people.store.access import end_session
from tutelage.people.store.api_tokens import create_token, list_tokens, revoke_token
from tutelage.people.store.consents import ask_consent
from tutelage.people.store.inbox import set_alarm
from tutelage.people.store.members import remove_member
from tutelage.people.store.visits import end_visit, enter, entry_of, list_visits, recruit, recruitment_of
from tutelage.people.store.webhooks import add_webhook
from tutelage.people.web import Served, create_server
from tutelage.people.web.app import ChatPage, mount_of
from tutelage.people.web.render import render

from .chromium import ARGUMENTS, find
from .showcase import DAYS, Clock, answered, conversations, correcting, dialogue, fresh, ranking, ratings, spoken
from .sites import Site, press, ready, saved, shown
from .translated import translated

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDE, TALL = (1200, 800), (360, 740)
WIDEST = 900
UNHINTED = "--font-render-hinting=none"
"""Without it, letters of a page that is made smaller stand at whole pixels, with gaps between them."""
IMPORT_COMMAND = (
    "tutelage collect import runs/study votes.csv --prompt question --a response_1 --b response_2 "
    "--choice-column label --rater annotator --choice 1=a --choice 2=b"
)
BLUE = (
    "Sunlight looks white, but it is a mix ", "of **all** colours.\n\nThe air ", "bounces blue light around ",
    "the most, so it reaches ", "you from everywhere.",
)  # fmt: skip
SKY = (
    "The sky is blue because ", "of Rayleigh scattering, whose strength ", "goes with $1/\\lambda^4$. ",
    "That is all there is to it.",
)  # fmt: skip
"""What two models say, piece by piece."""
NAMES = tuple(
    f"{first} {last}"
    for last in ("Okafor", "Lindt", "Marin")
    for first in ("Mira", "Noah", "Lena", "Omar", "Ida", "Tariq")
)
PROLIFIC = Recruitment(
    "prolific", code="C1ABC", screened_code="C2XYZ", answers=20, places=50, pay=12, currency="GBP", fee=0.3
)
CONSENT = """\
# What you agree to

You compare answers of language models, and your votes train one. The study is run by the **reading group**,
reading@example.org.

- We keep your name, your votes, and what you write.
- We erase all of it {days} days after you were last here, or when you ask for it, your votes too.
- You may stop at any time, and need not say why.
"""
Act = Callable[[Page, Site], object]


@dataclass(frozen=True)
class Picture:
    """A page as it is photographed: where, in which size, scheme and language, and what is done there first."""

    name: str
    path: str
    act: Act = lambda page, site: None
    size: tuple[int, int] = WIDE
    dark: bool = False
    new: bool = False
    whole: bool = False
    locale: str = "en-US"


def chosen(page: Page, site: Site) -> None:
    better = shown(page).texts[1].startswith("A loop")
    press(page, "c 3 3 2 3 3 6" if better else "c 1 1 2 1 1 2")
    page.evaluate("scrollTo(0, 0)")


def flagged(page: Page, site: Site) -> None:
    shown(page)
    press(page, "x f 5 n")
    page.keyboard.type("The second never says where to stop.")


def better_second(page: Page, site: Site) -> None:
    shown(page)
    press(page, "c 1 2 2")
    page.evaluate("scrollTo(0, 0)")


def marked(page: Page, site: Site) -> None:
    shown(page)
    press(page, "e 1")


def in_a_dialog(opener: str) -> Act:
    def act(page: Page, site: Site) -> None:
        shown(page)
        page.click(opener)

    return act


def earlier(page: Page, site: Site) -> None:
    shown(page)
    press(page, "h")


def skipping(page: Page, site: Site) -> None:
    shown(page)
    press(page, "s")


def taught(page: Page, site: Site) -> None:
    question = shown(page)
    press(page, "1 Enter" if question.texts[1].startswith("It looks") else "7 Enter")
    page.wait_for_selector("#lesson:not([hidden])")


def at_the_end(page: Page, site: Site) -> None:
    question = shown(page).question
    press(page, "2 Enter")
    shown(page, question)
    press(page, "3 Enter")
    page.wait_for_selector("#pause:not([hidden])")
    saved(page)


def offline(page: Page, site: Site) -> None:
    question = shown(page).question
    ready(page)
    page.context.set_offline(True)
    press(page, "2 Enter")
    shown(page, question)
    page.wait_for_selector("#save[data-state=offline]")


def beside_the_study(page: Page, site: Site) -> None:
    """The command as it looks where the study is at hand, and not in a temporary folder."""
    command = "tutelage collect export runs/study --out NEW_FOLDER"
    page.evaluate("(command) => { document.querySelector('#command').value = command; }", command)


def sent(page: Page, site: Site) -> None:
    """A table of votes with words of its own for a choice, two of which have been given their meaning."""
    rows = [
        ("Why is the sky blue?", "Air scatters blue light the most.", "Because it is.", "1", "Ada"),
        ("Why is the sky blue?", "Air scatters blue light the most.", "Because it is.", "1", "Bea"),
        ("What is a prime number?", "A number.", "One that only 1 and itself divide.", "2", "Ada"),
        ("What is a prime number?", "A number.", "One that only 1 and itself divide.", "0", "Bea"),
        ("Who was Hypatia?", "A mathematician of Alexandria.", "A queen.", "1", "Cem"),
    ]
    table = "\n".join(",".join(row) for row in [("question", "response_1", "response_2", "label", "annotator"), *rows])
    upload: FilePayload = {"name": "votes.csv", "mimeType": "text/csv", "buffer": table.encode()}
    page.set_input_files("#file", upload)
    page.wait_for_selector("#outcome")
    for word, meaning in (("1", "a"), ("2", "b")):
        page.get_by_label(f"Meaning of {word}").select_option(f"{word}={meaning}")
    page.click("text=Look again")
    page.wait_for_selector("text=4 votes by 3 raters")
    page.evaluate("(command) => { document.querySelector('#command').value = command; }", IMPORT_COMMAND)


def connected(page: Page, site: Site) -> None:
    """A study that two programs work with, and one works no more."""
    store, study = site.store, open_study(site.store).id
    create_token(store, study, NewToken("last year's server", ("read",)))
    revoke_token(store, study, list_tokens(store, study)[0].id)
    create_token(store, study, NewToken("nightly questions", ("add",)))
    create_token(store, study, NewToken("training server", ("read", "export"), days=90))
    add_webhook(store, study, NewWebhook("https://hooks.example.org/study", ("round", "agreement")))
    set_alarm(store, study, 0.65)
    page.reload()
    page.evaluate("document.querySelector('#api').textContent = 'https://rate.example.org/api/v1'")


def with_a_team(page: Page, site: Site) -> None:
    """Another owner, and a reviewer who has no access any more."""
    store, study = site.store, open_study(site.store).id
    add_rater(store, study, "Ines Marin", role="owner")
    remove_member(store, add_rater(store, study, "Jonas Beck", role="reviewer").id, actor="You")
    page.reload()
    page.set_viewport_size({"width": WIDE[0], "height": 520})


def recruiting(page: Page, site: Site) -> None:
    """A study on Prolific with a place for fifty, two of which are taken."""
    store, study = site.store, open_study(site.store).id
    recruit(store, study, PROLIFIC)
    people = [enter(store, study, Visitor(f"5f3a{n}", "64b2", f"66c{n}"))[0] for n in range(4)]
    for rater, state in zip(people, ("complete", "left"), strict=False):
        end_visit(store, rater.id, state)  # type: ignore[arg-type]  # two of the states
    page.reload()
    page.evaluate("document.querySelector('#entry').value = 'https://rate.example.org/enter/ZC8n…'")
    page.evaluate("scrollTo(0, 0)")


def consenting(page: Page, site: Site) -> None:
    """A text of the owner's own in its second version."""
    store, study = site.store, open_study(site.store).id
    for number in range(2):
        ask_consent(store, study, Consent(CONSENT.format(days=90 * (number + 1)), "erase", 90 * (number + 1)))
    page.reload()


def at_the_door(page: Page, site: Site) -> None:
    """The page behind the link that a platform gives."""
    store, study = site.store, open_study(site.store).id
    if recruitment_of(store, study) is None:
        recruit(store, study, replace(PROLIFIC, answers=2))
    path = entry_of(store, study).partition("?")[0]
    number = len(list_visits(store, study))
    page.goto(f"{site.url}{path}?PROLIFIC_PID=5f3a{number}&STUDY_ID=64b2&SESSION_ID=66c{number}")


def with_a_code(page: Page, site: Site) -> None:
    """The page at the end of a visit."""
    at_the_door(page, site)
    page.click("main button.primary")
    page.wait_for_url("**/welcome")
    page.click("main button.primary")
    question = shown(page).question
    press(page, "2 Enter")
    shown(page, question)
    press(page, "3 Enter")
    page.wait_for_url("**/finish")


class Several(Site):
    """A server with all the studies of a database."""

    def application(self) -> ASGIApp:
        studies = [open_study(self.store, name) for name in list_studies(self.store)]
        return create_server([Served(self.store, study) for study in studies])


def three_studies(store: Store, clock: Clock) -> Study:
    """Three studies in a database."""
    ranking(store)
    dialogue(store)
    return fresh(store)


def at_the_front(page: Page, site: Site) -> None:
    """The front page as an owner of each study sees it."""
    for name in list_studies(site.store):
        token = create_invite(site.store, open_study(site.store, name).id, NewInvitation(role="owner")).secret
        page.goto(f"{site.url}{mount_of(name)}/join/{token}")
        page.fill("#name", "Ines Marin")
        page.click("text=Start")
        page.wait_for_url("**/owner")
    page.goto(site.url)


def forgotten(page: Page, site: Site) -> None:
    """What a rater's page says once the rater is forgotten, with a backup that was changed too."""
    backup(site.store)
    page.check("#sure")
    page.click("button.danger:has-text('Forget')")
    page.locator("#forgotten-title").scroll_into_view_if_needed()


def left(page: Page, site: Site) -> None:
    page.click("#leave")
    page.wait_for_selector("#link")


def join_known(page: Page, site: Site) -> None:
    page.goto(site.invitation(open_study(site.store)))


def name_taken(page: Page, site: Site) -> None:
    left(page, site)
    join_known(page, site)
    page.fill("#name", list_raters(site.store, open_study(site.store).id)[-1].name.lower())
    page.click("text=Start")


def ranked(page: Page, site: Site) -> None:
    ranks = {"The Moon is a ball": "1", "The Moon orbits": "3", "The Moon is a big": "4", "It is a rock.": "2"}
    said = [rank for text in shown(page).texts for begin, rank in ranks.items() if text.startswith(begin)]
    press(page, " ".join(said))
    page.evaluate("scrollTo(0, 0)")


def rated(page: Page, site: Site) -> None:
    shown(page)
    press(page, "4 5 4 3 3")
    page.evaluate("scrollTo(0, 0)")


def words_marked(page: Page, site: Site) -> None:
    wrong = [text.startswith("Yes") for text in shown(page).texts].index(True)
    press(page, "7 e" if wrong == 0 else "1 e")
    words = page.locator(".words").nth(wrong).locator(".word")
    for first, last in (("largest", "fish"), ("gills", "gills")):
        words.filter(has_text=first).first.click()
        if first != last:
            words.filter(has_text=last).first.click()
        page.keyboard.press("1")
    words.filter(has_text="goldfish").click()
    page.evaluate("scrollTo(0, 0)")


def corrected(page: Page, site: Site) -> None:
    words_marked(page, site)
    press(page, "Escape w")
    page.keyboard.press("Control+End")
    page.keyboard.type(" Dolphins are mammals, too!")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")


def talked(page: Page, site: Site, models: Models, message: str = "Why is the sky blue?") -> None:
    site.models = models
    page.wait_for_selector("#message:focus")
    page.keyboard.type(message)
    press(page, "Enter")


def written(page: Page, site: Site) -> None:
    """Both answers as far as they have come: the page waits for the models, and they for ever."""
    talked(page, site, Scripted.of(first=saying(*BLUE[:-1], 600.0), second=saying(*SKY[:-2], 600.0)))
    page.wait_for_selector("#responses .text.writing:has-text('bounces')")


def answered_live(page: Page, site: Site) -> None:
    talked(page, site, Scripted.of(first=saying(*BLUE), second=saying(*SKY)))
    shown(page)


def gone_on(page: Page, site: Site) -> None:
    answered_live(page, site)
    press(page, "2 Enter" if shown(page).texts[0].startswith("Sunlight") else "6 Enter")
    page.wait_for_selector("#message:focus")
    page.keyboard.type("But then why is it red in the evening?")


def chat_app(store: Store) -> Starlette:
    """The page to chat on, of a model that says both of what is above in turn."""
    texts, said = ("".join(BLUE), "".join(SKY)), count()
    study = open_study(store)

    async def answer(request: Request) -> Response:
        number = next(said)
        chunk = {"id": f"c{number}", "choices": [{"delta": {"content": texts[number % 2]}}]}
        last = {"id": f"c{number}", "choices": [], "feedback": {"until": 0}}
        events = "".join(f"data: {each}\n\n" for each in (json.dumps(chunk), json.dumps(last), "[DONE]"))
        return Response(events, media_type="text/event-stream")

    async def terms(request: Request) -> Response:
        return JSONResponse({"consent": {"sha256": "agreed", "html": ""}})

    async def noted(request: Request) -> Response:
        return JSONResponse({"html": render((await request.json()).get("text", ""), "en")})

    posts = {"/v1/chat/completions": answer, "/v1/feedback": noted, "/v1/feedback/html": noted}
    routes = [Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()]
    page = ChatPage(store, study.id, model="tutor", days=7, share=1.0)
    return Starlette(routes=[Route("/v1/feedback", terms), *routes, *page.routes])


def chatted(page: Page, site: Site) -> None:
    """A user who chats, and looks at another answer beside the first one."""
    with serving(chat_app(site.store)) as url:
        page.goto(url)
        page.click("#agree")
        page.fill("#message", "Why is the sky blue?")
        page.keyboard.press("Enter")
        page.click(".again")
        page.wait_for_selector(".prefer")
        page.evaluate("document.activeElement.blur()")
        page.evaluate("document.fonts.ready")


def thumbed(page: Page, site: Site) -> None:
    """A user who finds an answer good, on a phone."""
    with serving(chat_app(site.store)) as url:
        page.goto(url)
        page.click("#agree")
        page.fill("#message", "Why is the sky blue?")
        page.keyboard.press("Enter")
        page.click(".up")
        page.wait_for_selector(".said:not(:empty)")
        page.evaluate("document.activeElement.blur()")
        page.evaluate("document.fonts.ready")


def gone(page: Page, site: Site) -> None:
    talked(page, site, Scripted.of(first=saying(Unanswered("gone")), second=saying(*SKY)))
    page.wait_for_selector("#again:not([hidden])")


RATER = (
    Picture("rater", "/rate", chosen),
    Picture("rater-dark", "/rate", chosen, dark=True),
    Picture("rater-narrow", "/rate", chosen, size=TALL),
    Picture("rater-flags", "/rate", flagged),
    Picture("rater-skip", "/rate", skipping),
    Picture("rater-keys", "/rate", in_a_dialog("#open-keys")),
    Picture("rater-guidelines", "/rate", in_a_dialog("#open-guidelines")),
    Picture("rater-offline", "/rate", offline),
    Picture("rater-practice", "/rate", taught, new=True),
    Picture("rater-end", "/rate", at_the_end),
    Picture("welcome", "/welcome", whole=True),
    Picture("left", "/rate", left),
    Picture("left-narrow", "/rate", left, size=TALL, dark=True),
    Picture("join-taken", "/rate", name_taken),
    Picture("join-known", "/rate", join_known, size=TALL),
)
RANKING = (Picture("ranking", "/rate", ranked), Picture("ranking-narrow", "/rate", ranked, size=TALL, dark=True))
RATINGS = (Picture("ratings", "/rate", rated), Picture("ratings-narrow", "/rate", rated, size=TALL, dark=True))
CORRECTING = (
    Picture("rater-spans", "/rate", words_marked),
    Picture("rater-spans-narrow", "/rate", words_marked, size=TALL, dark=True),
    Picture("rater-correction", "/rate", corrected),
    Picture("rater-correction-narrow", "/rate", corrected, size=TALL, dark=True),
)
CORRECTED = (
    Picture("owner-corrections", "/owner/items/whales", whole=True),
    Picture("owner-corrections-narrow", "/owner/items/whales", size=TALL, dark=True, whole=True),
)
DIALOGUE = (
    Picture("rater-earlier", "/rate", earlier),
    Picture("rater-earlier-narrow", "/rate", earlier, size=TALL, dark=True),
)
LIVE = (
    Picture("live", "/rate"),
    Picture("live-writing", "/rate", written),
    Picture("live-judging", "/rate", answered_live),
    Picture("live-next", "/rate", gone_on),
    Picture("live-narrow", "/rate", gone_on, size=TALL, dark=True),
    Picture("live-narrow-writing", "/rate", written, size=TALL, dark=True),
    Picture("live-gone", "/rate", gone),
)
ARABIC = (
    Picture("rater-arabic", "/rate", better_second),
    Picture("rater-arabic-narrow", "/rate", better_second, size=TALL, dark=True),
    Picture("rater-arabic-spans", "/rate", marked),
    Picture("left-arabic", "/rate", left),
)
GERMAN = (
    Picture("rater-german", "/rate", better_second),
    Picture("rater-german-narrow", "/rate", better_second, size=TALL),
    Picture("welcome-german", "/welcome", whole=True),
)
OWNER = (
    Picture("owner", "/owner", whole=True),
    Picture("owner-dark", "/owner", whole=True, dark=True),
    Picture("owner-narrow", "/owner", size=TALL),
    Picture("owner-inbox", "/owner/inbox"),
    Picture("owner-inbox-narrow", "/owner/inbox", size=TALL),
    Picture("owner-raters", "/owner/raters"),
    Picture("owner-raters-narrow", "/owner/raters", size=TALL),
    Picture("owner-rater", "/owner/raters/6", whole=True),
    Picture("owner-items", "/owner/items"),
    Picture("owner-items-found", "/owner/items?text=moon&state=done", whole=True),
    Picture("owner-items-narrow", "/owner/items", size=TALL, dark=True),
    Picture("owner-item", "/owner/items", lambda page, site: page.click(".items a >> nth=0"), whole=True),
    Picture("owner-models", "/owner/models", whole=True),
    Picture("owner-export", "/owner/export", beside_the_study, size=(WIDE[0], 1340)),
    Picture("owner-import", "/owner/import", sent, whole=True),
    Picture("owner-import-narrow", "/owner/import", sent, size=TALL, dark=True),
    Picture("owner-programs", "/owner/programs", connected, whole=True),
    Picture("owner-settings", "/owner/settings", whole=True),
    Picture("owner-invitations", "/owner/invitations", lambda page, site: page.click("text=Make the link")),
    Picture("owner-history", "/owner/history"),
    Picture("owner-team", "/owner/team", with_a_team),
    Picture("owner-sessions", "/owner/sessions"),
    Picture("owner-forget", "/owner/raters/3", forgotten),
    Picture("owner-menu-narrow", "/owner", lambda page, site: page.click("nav summary >> nth=1"), size=TALL),
)
SETTING_UP = (
    Picture("owner-recruiting", "/owner/recruiting", recruiting, whole=True),
    Picture("owner-recruiting-narrow", "/owner/recruiting", size=TALL, dark=True),
    Picture("owner-consent", "/owner/consent", consenting, whole=True),
    Picture("welcome-consent", "/welcome", whole=True),
)
VISITING = (
    Picture("visit-link", "/", at_the_door, size=TALL),
    Picture("visit-code", "/", with_a_code, size=TALL),
    Picture("visit-code-wide", "/", with_a_code, dark=True),
)
SPOKEN = (Picture("owner-models-live", "/owner/models", size=(WIDE[0], 620)),)
CHAT = (
    Picture("chat", "/", chatted, size=(WIDE[0], 620)),
    Picture("chat-narrow", "/", thumbed, size=(TALL[0], 620), dark=True),
)
FRONT = (Picture("front", "/", at_the_front, size=(WIDE[0], 520)),)
OWNER_ARABIC = (
    Picture("owner-arabic", "/owner", whole=True, locale="ar"),
    Picture("owner-arabic-narrow", "/owner/raters", size=TALL, dark=True, locale="ar"),
)
WORLDS: tuple[tuple[Callable[[Store, Clock], Study], str, tuple[Picture, ...]], ...] = (
    (lambda store, clock: fresh(store), "rater", RATER),
    (lambda store, clock: ranking(store), "rater", RANKING),
    (lambda store, clock: ratings(store), "rater", RATINGS),
    (lambda store, clock: correcting(store), "rater", CORRECTING),
    (lambda store, clock: correcting(store), "owner", CORRECTED),
    (lambda store, clock: dialogue(store), "rater", DIALOGUE),
    (lambda store, clock: conversations(store), "rater", LIVE),
    (lambda store, clock: translated(store, "ar"), "rater", ARABIC),
    (lambda store, clock: translated(store, "de"), "rater", GERMAN),
    (answered, "owner", OWNER),
    (answered, "owner", OWNER_ARABIC),
    (answered, "owner", SETTING_UP),
    (lambda store, clock: correcting(store), "nobody", VISITING),
    (spoken, "owner", SPOKEN),
    (three_studies, "nobody", FRONT),
    (lambda store, clock: create_study(store, "use", kind="thumbs"), "nobody", CHAT),
)
KEPT = (
    "rater", "rater-narrow", "ranking", "ratings", "owner",
    "owner-raters", "owner-inbox", "owner-team", "owner-sessions", "owner-forget", "owner-items-found", "owner-item",
    "owner-import", "owner-export", "owner-programs", "left", "rater-spans", "rater-correction-narrow",
    "owner-corrections", "live-writing", "live-narrow", "rater-earlier", "rater-arabic", "rater-arabic-narrow",
    "rater-german", "owner-recruiting", "owner-consent", "visit-link", "visit-code", "front", "owner-models-live",
    "owner-arabic", "chat", "chat-narrow",
)  # fmt: skip


def take(folder: Path, names: Sequence[str]) -> None:
    """Write the pictures of these names into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=[*ARGUMENTS, UNHINTED])
        for study_of, role, pictures in WORLDS:
            wanted = [picture for picture in pictures if picture.name in names]
            if not wanted:
                continue
            with tempfile.TemporaryDirectory() as made:
                clock = Clock(DAYS)
                store = open_store(Path(made) / "study.sqlite", clock=clock)
                study = study_of(store, clock)
                clock.behind = 0.0
                with (Several if len(list_studies(store)) > 1 else Site)(store) as site:
                    for picture in wanted:
                        photograph(browser, site, study, role, picture, folder / f"{picture.name}.png")
                store.close()
        browser.close()


def photograph(browser: Browser, site: Site, study: Study, role: str, picture: Picture, path: Path) -> None:
    """One picture: by a rater of its own, or by the owner, who is the same on all of them."""
    width, height = picture.size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if picture.dark else "light",
        reduced_motion="reduce",
        locale=picture.locale,
        device_scale_factor=min(1.0, WIDEST / width),
    )
    page = context.new_page()
    known = {rater.name: rater.id for rater in list_raters(site.store, study.id)}
    if role == "owner" and "You" in known:
        site.recognise(page, known["You"])
    elif role != "nobody":
        name = "You" if role == "owner" else next(name for name in NAMES if name not in known)
        site.sign_in(page, study, name, role=role, training=picture.new)
    page.goto(f"{site.url}{picture.path}")
    picture.act(page, site)
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(200)
    page.screenshot(path=path, full_page=picture.whole)
    for cookie in context.cookies():
        end_session(site.store, str(cookie["value"]))
    context.close()


if __name__ == "__main__":
    every = [picture.name for _, _, pictures in WORLDS for picture in pictures]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--all", action="store_true", help="every picture, not only those of the documentation")
    parser.add_argument("names", nargs="*", choices=[*every, []], metavar="NAME")
    asked = parser.parse_args()
    take(asked.out, asked.names or (every if asked.all else KEPT))
