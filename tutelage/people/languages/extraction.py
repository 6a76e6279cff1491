"""Extraction of messages from the sources, and update of the catalogues.

    python -m tutelage.people.languages.extraction

adds new messages to each `.po` file, without a translation, and removes obsolete ones; tests fail until all messages
are translated.
"""

from collections.abc import Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir, extract_from_file
from babel.messages.pofile import write_po

from tutelage.people.languages.catalogue import ENGLISH, FOLDER, LANGUAGES, catalogue

PEOPLE = FOLDER.parent
BELOW = ("data", "base/extras.py", "base/sentences.py")
"""Further folders and files of the package with sentences for these pages."""
METHODS = (("web/templates/**.html", "jinja2"), ("web/static/**.js", "javascript"), ("**.py", "python"))
"""Extraction methods by pattern of paths."""
OPTIONS = {"web/templates/**.html": {"trimmed": "true", "newstyle_gettext": "true"}}
KEYWORDS: dict[str, tuple[int, ...] | None] = {
    "gettext": None,
    "_": None,
    "ngettext": (1, 2),
    "Sentence": None,
    "refusal": None,
    "StudyError": None,
    "NotAdmitted": None,
    "SignInError": None,
    "FieldError": (2,),
    "counted": (1, 2),
    "remark": (1, 2),
}


def sources() -> Iterator[tuple[str, str | tuple[str, ...]]]:
    """All messages with their source files, relative to the package `people`."""
    for path, _, message, _, _ in extract_from_dir(PEOPLE, list(METHODS), OPTIONS, KEYWORDS):
        yield Path(path).as_posix(), message
    for name in BELOW:
        folder = PEOPLE.parent / name
        for file in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            for _, message, _, _ in extract_from_file("python", file, KEYWORDS):
                yield f"../{file.relative_to(PEOPLE.parent).as_posix()}", message


def template() -> Catalog:
    """A catalogue of all messages with their source files, in the order of the files."""
    catalog = Catalog(project="Tutelage", fuzzy=False, creation_date=None)
    for path, message in sorted(sources(), key=lambda each: each[0]):
        catalog.add(message, locations=[(path, 0)], flags=())
    return catalog


def update() -> None:
    """Update all catalogues from the sources."""
    messages = template()
    for code in LANGUAGES:
        path = FOLDER / f"{code}.po"
        if code == ENGLISH:
            continue
        if path.exists():
            catalog = catalogue(code)
        else:
            catalog = Catalog(locale=LANGUAGES[code].tag.replace("-", "_"), project="Tutelage", fuzzy=False)
        catalog.update(messages, no_fuzzy_matching=True, update_creation_date=False)
        catalog.obsolete.clear()
        with path.open("wb") as file:
            write_po(file, catalog, width=120, include_lineno=False, omit_header=False)


if __name__ == "__main__":
    update()
