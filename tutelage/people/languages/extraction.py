"""The messages of the sources, and the catalogues brought up to date with them.

    python -m tutelage.people.languages.extraction

adds what is new to each `.po` file, without a translation, and takes out what is gone; the tests fail until all are
translated.
"""

from collections.abc import Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir, extract_from_file
from babel.messages.pofile import write_po

from tutelage.people.languages.catalogue import ENGLISH, FOLDER, LANGUAGES, catalogue

PEOPLE = FOLDER.parent
BELOW = ("data", "base/extras.py")
"""What else of the package makes sentences that these pages show: a folder or a file."""
METHODS = (("web/templates/**.html", "jinja2"), ("web/static/**.js", "javascript"), ("**.py", "python"))
"""How messages are found."""
OPTIONS = {"web/templates/**.html": {"trimmed": "true", "newstyle_gettext": "true"}}
KEYWORDS: dict[str, tuple[int, ...] | None] = {
    "gettext": None,
    "_": None,
    "ngettext": (1, 2),
    "Sentence": None,
    "FieldError": (2,),
    "counted": (1, 2),
}


def sources() -> Iterator[tuple[str, str | tuple[str, ...]]]:
    """Every message with the file that it is in, relative to the package `people`."""
    found = extract_from_dir(PEOPLE, list(METHODS), OPTIONS, KEYWORDS)
    for path, _, message, _, _ in found:
        yield Path(path).as_posix(), message
    for name in BELOW:
        folder = PEOPLE.parent / name
        for file in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            for _, message, _, _ in extract_from_file("python", file, KEYWORDS):
                yield f"../{file.relative_to(PEOPLE.parent).as_posix()}", message


def template() -> Catalog:
    """The messages of all sources, each with its files, in the order of the files."""
    found = Catalog(project="Tutelage", fuzzy=False, creation_date=None)
    for path, message in sorted(sources(), key=lambda each: each[0]):
        found.add(message, locations=[(path, 0)], flags=())
    return found


def update() -> None:
    """Write every catalogue anew."""
    messages = template()
    for code in LANGUAGES:
        path = FOLDER / f"{code}.po"
        if code == ENGLISH:
            continue
        if path.exists():
            kept = catalogue(code)
        else:
            kept = Catalog(locale=LANGUAGES[code].tag.replace("-", "_"), project="Tutelage", fuzzy=False)
        kept.update(messages, no_fuzzy_matching=True, update_creation_date=False)
        kept.obsolete.clear()
        with path.open("wb") as file:
            write_po(file, kept, width=120, include_lineno=False, omit_header=False)


if __name__ == "__main__":
    update()
