"""`tutelage collect invite`: links that let people in."""

import csv
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.commands.collecting.place import open_existing, operator
from tutelage.commands.collecting.settings_serving import Invite
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.people import Store, Study


def invite(settings: Invite) -> int:
    """Print a link for a new rater, reviewer or owner, or for one who comes back."""
    from tutelage.people import create_invite, find_rater, personal_link, start_session
    from tutelage.people.store.raters import DECIDING

    store, study = open_existing(settings)
    url = settings.url.rstrip("/")
    with closing(store):
        if settings.names is not None:
            _print_links(store, study, settings.names, url, settings.days)
        elif settings.rater:
            rater = find_rater(store, study.id, settings.rater)
            if rater is None:
                raise TutelageError(f"'{study.name}' has no rater named '{settings.rater}'.")
            if rater.role in DECIDING:
                token = start_session(store, rater.id, days=settings.days)
            else:
                token = personal_link(store, rater.id, days=settings.days, actor=operator())
            print(f"{url}/return/{token}")
        else:
            token = create_invite(
                store,
                study.id,
                role=settings.role,
                max_uses=settings.uses,
                days=settings.days,
                note=settings.note,
                actor=operator(),
            )
            print(f"{url}/join/{token}")
    return 0


def _print_links(store: "Store", study: "Study", file: Path, url: str, days: float) -> None:
    """Print a personal link for each name in a file, as CSV."""
    from tutelage.people import personal_links
    from tutelage.people.export_rows import safe_cell

    try:
        names = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise TutelageError(f"The names in {file} cannot be read: {error}.") from error
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("name", "link"))
    note = "from a list of names"
    for name, token in personal_links(store, study.id, names, days=days, note=note, actor=operator()):
        writer.writerow((safe_cell(name), f"{url}/return/{token}"))
