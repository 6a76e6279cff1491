"""Pictures of both screens for the documentation; in the folder `tests`: `python -m browser.screenshots [NAME …]`."""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tutelage.people import Store, Study, open_store

from .chromium import ARGUMENTS, find
from .showcase import DAYS, Clock, answered, fresh, ranking, ratings
from .sites import Site, press, saved, shown

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDE, TALL = (1200, 800), (360, 740)
WIDEST = 900
Act = Callable[[Page, Site], object]


@dataclass(frozen=True)
class Picture:
    """A page as it is photographed: by whom, where, in which size and scheme, and what is done there first."""

    name: str
    path: str
    act: Act = lambda page, site: None
    size: tuple[int, int] = WIDE
    dark: bool = False
    new: bool = False
    whole: bool = False


def chosen(page: Page, site: Site) -> None:
    better = shown(page).texts[1].startswith("A loop")
    press(page, "c 3 3 2 3 3 6" if better else "c 1 1 2 1 1 2")
    page.evaluate("scrollTo(0, 0)")


def flagged(page: Page, site: Site) -> None:
    shown(page)
    press(page, "x f 5 n")
    page.keyboard.type("The second never says where to stop.")


def in_a_dialog(opener: str) -> Act:
    def act(page: Page, site: Site) -> None:
        shown(page)
        page.click(opener)

    return act


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
    page.wait_for_timeout(300)
    page.context.set_offline(True)
    press(page, "2 Enter")
    shown(page, question)
    page.wait_for_selector("#save[data-state=offline]")


def beside_the_study(page: Page, site: Site) -> None:
    """The command as it looks where the study is at hand, and not in a temporary folder."""
    command = "tutelage collect export runs/study --out NEW_FOLDER"
    page.evaluate("(command) => { document.querySelector('#command').value = command; }", command)


def ranked(page: Page, site: Site) -> None:
    ranks = {
        "The Moon is a ball": "1",
        "The Moon orbits": "3",
        "The Moon is a big": "4",
        "It is a rock.": "2",
    }
    said = [rank for text in shown(page).texts for begin, rank in ranks.items() if text.startswith(begin)]
    press(page, " ".join(said))
    page.evaluate("scrollTo(0, 0)")


def rated(page: Page, site: Site) -> None:
    shown(page)
    press(page, "4 5 4 3 3")
    page.evaluate("scrollTo(0, 0)")


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
)
RANKING = (
    Picture("ranking", "/rate", ranked),
    Picture("ranking-narrow", "/rate", ranked, size=TALL, dark=True),
)
RATINGS = (
    Picture("ratings", "/rate", rated),
    Picture("ratings-narrow", "/rate", rated, size=TALL, dark=True),
)
OWNER = (
    Picture("owner", "/owner", whole=True),
    Picture("owner-dark", "/owner", whole=True, dark=True),
    Picture("owner-narrow", "/owner", size=TALL),
    Picture("owner-raters", "/owner/raters"),
    Picture("owner-raters-narrow", "/owner/raters", size=TALL),
    Picture("owner-rater", "/owner/raters/6", whole=True),
    Picture("owner-items", "/owner/items"),
    Picture("owner-item", "/owner/items", lambda page, site: page.click(".items a >> nth=0"), whole=True),
    Picture("owner-models", "/owner/models", whole=True),
    Picture("owner-export", "/owner/export", beside_the_study, whole=True),
    Picture("owner-settings", "/owner/settings", whole=True),
    Picture("owner-invitations", "/owner/invitations", lambda page, site: page.click("text=Make the link")),
    Picture("owner-history", "/owner/history"),
)
WORLDS: tuple[tuple[Callable[[Store, Clock], Study], str, tuple[Picture, ...]], ...] = (
    (lambda store, clock: fresh(store), "rater", RATER),
    (lambda store, clock: ranking(store), "rater", RANKING),
    (lambda store, clock: ratings(store), "rater", RATINGS),
    (answered, "owner", OWNER),
)
KEPT = (
    "rater", "rater-dark", "rater-narrow", "ranking", "ratings", "owner", "owner-dark", "owner-narrow", "owner-raters",
    "owner-item", "owner-export",
)  # fmt: skip


def take(folder: Path, names: Sequence[str]) -> None:
    """Write the pictures of these names into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=list(ARGUMENTS))
        for study_of, role, pictures in WORLDS:
            wanted = [picture for picture in pictures if picture.name in names]
            if not wanted:
                continue
            with tempfile.TemporaryDirectory() as made:
                clock = Clock(DAYS)
                store = open_store(Path(made) / "study.sqlite", clock=clock)
                study = study_of(store, clock)
                clock.behind = 0.0
                with Site(store) as site:
                    for picture in wanted:
                        photograph(browser, site, study, role, picture, folder / f"{picture.name}.png")
                store.close()
        browser.close()


def photograph(browser: Browser, site: Site, study: Study, role: str, picture: Picture, path: Path) -> None:
    """One picture, taken by a visitor of its own."""
    width, height = picture.size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if picture.dark else "light",
        reduced_motion="reduce",
        device_scale_factor=min(1.0, WIDEST / width),
    )
    page = context.new_page()
    name = "Mira Okafor" if role == "rater" else "You"
    site.sign_in(page, study, f"{name} {picture.name}", role=role, training=picture.new)
    page.goto(f"{site.url}{picture.path}")
    picture.act(page, site)
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(200)
    page.screenshot(path=path, full_page=picture.whole)
    context.close()


if __name__ == "__main__":
    every = [picture.name for _, _, pictures in WORLDS for picture in pictures]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument(
        "--all", action="store_true", help="every picture, not only those of the documentation"
    )
    parser.add_argument("names", nargs="*", choices=[*every, []], metavar="NAME")
    asked = parser.parse_args()
    take(asked.out, asked.names or (every if asked.all else KEPT))
