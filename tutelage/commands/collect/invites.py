"""`tutelage collect invite`: invitation and personal links."""

import csv
import re
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collect.subcommands import given_values, settings_of
from tutelage.commands.study import SiteSettings, mail_server, open_existing, operator
from tutelage.people.operations import INVITE
from tutelage.people.settings import NewInvitation

if TYPE_CHECKING:
    from tutelage.people import Store, Study


@dataclass(frozen=True, kw_only=True)
class PersonalLinks(SiteSettings):
    """Personal links for raters, instead of an invitation."""

    rater: str = ""
    """Existing rater to make a link for, instead of inviting a new one."""
    names: Path | None = None
    """File with one name per line, or a table (CSV) with the columns name and email: print a table of personal links,
    which can be used repeatedly. With --smtp they are mailed, and the table shows which were sent."""
    email: str = ""
    """Mail the personal link of --rater to this address instead of printing it. Addresses are not stored."""
    smtp: str = ""
    """Mail server: smtp://user@mail.example.org:587; its password is read from TUTELAGE_SMTP_PASSWORD."""
    mail_from: str = ""
    """Sender address."""

    def __post_init__(self) -> None:
        if self.rater and self.names is not None:
            raise TutelageError("Personal links are for --rater or for --names; give one of them.")
        if self.email and not self.rater:
            raise TutelageError("--email is the address of --rater; addresses of --names belong in its file.")
        if len({bool(self.smtp), bool(self.mail_from), bool(self.email or (self.smtp and self.names))}) > 1:
            raise TutelageError(
                "A link is mailed with --smtp and --mail-from, to --email or to the addresses of --names."
            )


Invite = settings_of(INVITE, PersonalLinks)


def invite(settings: PersonalLinks) -> int:
    """Print a link for a new rater, reviewer or owner, or for a returning one."""
    from tutelage.people import find_rater, personal_link, start_session
    from tutelage.people.store.raters import DECIDING

    store, study = open_existing(settings)
    url = _base(settings)
    with closing(store):
        if settings.names is not None:
            addresses = _read_names(settings.names)
            if settings.smtp and not all(addresses.values()):
                raise TutelageError(
                    f"{settings.names} has no addresses to mail to; make it a table with the columns name and email."
                )
            (_mail_links if settings.smtp else _print_links)(settings, store, study, addresses)
        elif settings.rater:
            rater = find_rater(store, study.id, settings.rater)
            if rater is None:
                raise TutelageError(f"'{study.name}' has no rater named '{settings.rater}'.")
            if settings.email and rater.role in DECIDING:
                raise TutelageError(
                    f"'{rater.name}' is a {rater.role}, whose link works once and is not mailed; leave out --email."
                )
            if settings.email:
                _mail_links(settings, store, study, {rater.name: settings.email})
                return 0
            if rater.role in DECIDING:
                token = start_session(store, rater.id, days=_new(settings).days)
            else:
                token = personal_link(store, rater.id, days=_new(settings).days, actor=operator())
            print(f"{url}/return/{token}")
        else:
            credential = INVITE.run(store, study.id, _new(settings), operator())
            print(f"{url}{INVITE.path}{credential.secret}")
    return 0


def _print_links(settings: PersonalLinks, store: "Store", study: "Study", addresses: Mapping[str, str]) -> None:
    """Print a personal link for each name as CSV, with addresses if there are any."""
    from tutelage.people.export import safe_cell

    mailed = any(addresses.values())
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("name", "email", "link") if mailed else ("name", "link"))
    for name, address, token in _personal(settings, store, study, addresses, "from a list of names"):
        to = (safe_cell(address),) if mailed else ()
        table.writerow((safe_cell(name), *to, f"{_base(settings)}/return/{token}"))


def _mail_links(settings: PersonalLinks, store: "Store", study: "Study", addresses: Mapping[str, str]) -> None:
    """Mail a personal link to each address, and print the results as CSV. Failures do not stop the others."""
    from tutelage.people.export import safe_cell
    from tutelage.people.mail import MAILED, check_address, send_link

    server = mail_server(settings.smtp, settings.mail_from)
    assert server is not None, "the settings name one"
    for address in addresses.values():
        check_address(address)
    links = _personal(settings, store, study, addresses, MAILED)
    table, failed = csv.writer(sys.stdout, lineterminator="\n"), 0
    table.writerow(("name", "email", "mail"))
    for name, address, token in links:
        status = "sent"
        try:
            send_link(store, server, token, address, _base(settings), actor=operator())
        except TutelageError as error:
            failed, status = failed + 1, str(error)
        table.writerow((safe_cell(name), safe_cell(address), safe_cell(status)))
        sys.stdout.flush()
    if failed:
        raise TutelageError(
            f"{failed} of {counted(len(links), 'mail')} could not be sent; the table says why. Run the command again "
            "with those names."
        )


def _personal(
    settings: PersonalLinks, store: "Store", study: "Study", addresses: Mapping[str, str], note: str
) -> list[tuple[str, str, str]]:
    """Return name, address and token of a new personal link for each name."""
    from tutelage.data.vote_rows import fold_name
    from tutelage.people import personal_links

    links = personal_links(store, study.id, tuple(addresses), days=_new(settings).days, note=note, actor=operator())
    to = {fold_name(name): address for name, address in addresses.items()}
    return [(name, to[fold_name(name)], token) for name, token in links]


def _read_names(file: Path) -> dict[str, str]:
    """Read names from a file, one per line, without addresses; or from a table with the columns name and email."""
    from tutelage.data.tables import table_of
    from tutelage.data.vote_rows import cell_text, fold_name

    try:
        content = file.read_bytes()
        lines = [line for line in content.decode("utf-8-sig").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise TutelageError(f"The names in {file} cannot be read: {error}.") from error
    if not {"name", "email"} <= set(re.findall(r"\w+", lines[0].lower() if lines else "")):
        return {line.strip(): "" for line in lines}
    table = table_of(file.name if file.suffix.lower() in (".csv", ".tsv") else f"{file.name}.csv", content)
    table = table.renamed({column: column.lower() for column in table.columns})
    for broken in table.broken:
        raise TutelageError(f"{broken.where} of {file} cannot be read: {broken.reason}.")
    result: dict[str, str] = {}
    address_of: dict[str, str] = {}
    for row in table.rows:
        name, address = cell_text(row.values, "name"), cell_text(row.values, "email")
        if not name or not address:
            raise TutelageError(f"{row.where} of {file} lacks a name or an address; give both.")
        if address_of.setdefault(fold_name(name), address) != address:
            raise TutelageError(f"'{name}' has two addresses in {file}; give one.")
        result[name] = address
    return result


def _new(settings: PersonalLinks) -> NewInvitation:
    return NewInvitation(**given_values(settings))


def _base(settings: PersonalLinks) -> str:
    return settings.url.rstrip("/")
