"""`tutelage collect serve` and `invite`: serve a study to browsers, and make links for people."""

import csv
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.commands.collecting.models import ServedModels
from tutelage.commands.collecting.place import open_existing
from tutelage.commands.collecting.settings import Invite, Serve
from tutelage.errors import TutelageError
from tutelage.serving.listening import listen, server, signals_handled

if TYPE_CHECKING:
    from tutelage.people import Store, Study
    from tutelage.people.notifying import Channel

OWNER = "owner"


def serve(settings: Serve) -> int:
    """Print the address and the owner's link, and serve the study until ctrl-C."""
    from tutelage.people.notifying import Notifier
    from tutelage.people.retention import Retention
    from tutelage.people.store.live_models import find_live_models
    from tutelage.people.web import create_app

    store, study = open_existing(settings)
    models = ServedModels(settings.engine)
    with closing(store), closing(models), closing(listen(settings.host, settings.port)) as listening:
        live = find_live_models(store, study.id)
        if live is not None:
            models.prepare(live.names)
        port = listening.getsockname()[1]
        host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
        url = settings.public_url.rstrip("/") or f"http://{host}:{port}"
        app = create_app(store, public_url=settings.public_url, models=models)
        notifier = Notifier(store, study.id, _channels(settings), f"{url}/owner/inbox")
        print(
            f"{study.name}\n"
            f"  address       {url}\n"
            f"  owner's link  {url}/return/{owner_link(store, study)}   (works once, within a day)\n"
            f"  database      {store.address}\n"
            f"                {describe(store, study)}\n"
            "Invite raters from the owner's page. ctrl-C stops the server; what was answered is on the disk.",
            flush=True,
        )
        notifier.start()
        retention = Retention(store, study.id)
        retention.start()
        with closing(notifier), closing(retention), signals_handled():
            server(app).run(sockets=[listening])
    return 0


def _channels(settings: Serve) -> "list[Channel]":
    """How the owners are told what comes into the inbox."""
    from tutelage.people.notifying import Mail, Webhook

    channels: list[Channel] = []
    if settings.webhook:
        channels.append(Webhook(settings.webhook, os.environ.get("TUTELAGE_WEBHOOK_SECRET", "")))
    if settings.mail_to:
        password = os.environ.get("TUTELAGE_SMTP_PASSWORD", "")
        channels.append(Mail(settings.mail_to, settings.smtp, settings.mail_from, password))
    return channels


def invite(settings: Invite) -> int:
    """Print a link for a new rater or owner, or for a rater who comes back."""
    from tutelage.people import create_invite, find_rater, personal_link, start_session

    store, study = open_existing(settings)
    url = settings.url.rstrip("/")
    with closing(store):
        if settings.names is not None:
            _print_links(store, study, settings.names, url, settings.days)
        elif settings.rater:
            rater = find_rater(store, study.id, settings.rater)
            if rater is None:
                raise TutelageError(f"'{study.name}' has no rater named '{settings.rater}'.")
            owner = rater.role == "owner"
            make = start_session if owner else personal_link
            print(f"{url}/return/{make(store, rater.id, days=settings.days)}")
        else:
            token = create_invite(
                store,
                study.id,
                role=settings.role,
                max_uses=settings.uses,
                days=settings.days,
                note=settings.note,
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
    for name, token in personal_links(store, study.id, names, days=days, note="from a list of names"):
        writer.writerow((safe_cell(name), f"{url}/return/{token}"))


def owner_link(store: "Store", study: "Study") -> str:
    """The token of a link that signs the owner in, once; the owner is made if there is none."""
    from tutelage.people import add_rater, list_raters, start_session

    owners = [rater for rater in list_raters(store, study.id) if rater.role == "owner"]
    owner = owners[0] if owners else add_rater(store, study.id, OWNER, role="owner")
    return start_session(store, owner.id, days=1)


def describe(store: "Store", study: "Study") -> str:
    """One line with the numbers of questions, judgements and raters of the study."""
    from tutelage.people import count_study, list_raters

    counts = count_study(store, study.id)
    raters = sum(rater.role == "rater" for rater in list_raters(store, study.id))
    return f"{counts.items:,} questions, {counts.judgements:,} judgements, {raters:,} raters"
