"""`tutelage collect serve` and `invite`: serve a study to browsers, and make links for people."""

import socket
from contextlib import closing
from typing import TYPE_CHECKING

from tutelage.commands.collecting.place import open_existing
from tutelage.commands.collecting.settings import Invite, Serve
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    import uvicorn

    from tutelage.people import Store, Study

OWNER = "owner"


def serve(settings: Serve) -> int:
    """Print the address and the owner's link, and serve the study until ctrl-C."""
    from tutelage.people.web import create_app

    store, study = open_existing(settings)
    with closing(store), closing(listen(settings.host, settings.port)) as listening:
        port = listening.getsockname()[1]
        host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
        url = settings.public_url.rstrip("/") or f"http://{host}:{port}"
        app = create_app(store, public_url=settings.public_url)
        print(
            f"{study.name}\n"
            f"  address       {url}\n"
            f"  owner's link  {url}/return/{owner_link(store, study)}   (works once, within a day)\n"
            f"  database      {store.address}\n"
            f"                {describe(store, study)}\n"
            "Invite raters from the owner's page. ctrl-C stops the server; what was answered is on the disk.",
            flush=True,
        )
        server(app).run(sockets=[listening])
    return 0


def invite(settings: Invite) -> int:
    """Print a link for a new rater or owner, or for a rater who comes back."""
    from tutelage.people import create_invite, find_rater, start_session

    store, study = open_existing(settings)
    url = settings.url.rstrip("/")
    with closing(store):
        if settings.rater:
            rater = find_rater(store, study.id, settings.rater)
            if rater is None:
                raise TutelageError(f"'{study.name}' has no rater named '{settings.rater}'.")
            print(f"{url}/return/{start_session(store, rater.id, days=settings.days)}")
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


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections. Raises TutelageError where the port cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(512)
    except OSError as error:
        listening.close()
        raise TutelageError(
            f"Port {port} of {host} cannot be used ({error.strerror}); choose another with --port."
        ) from error
    return listening


def server(app: object) -> "uvicorn.Server":
    """A uvicorn server for the application; it trusts no proxy header."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,  # type: ignore[arg-type]
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
    )


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
