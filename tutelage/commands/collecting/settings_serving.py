"""The settings of the commands of `tutelage collect` about the server, who gets in, and its data as a whole."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.collecting.settings import CollectSettings
from tutelage.commands.serve.settings import PORT


@dataclass(frozen=True, kw_only=True)
class Serve(CollectSettings):
    """Serve a study to browsers until ctrl-C, or several, each below /s/NAME."""

    more: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[STUDY ...]")] = ()
    """More studies. A folder of studies stands for all that lie in it."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in."""
    port: int = PORT
    """Port to listen on; 0 takes a free one."""
    public_url: str = ""
    """Where browsers reach the site, if a proxy stands in between: https://rate.example.org, or https://example.org/rating."""
    owner: str = ""
    """Name of the owner whom the printed link signs in; made where there is none of that name. [default: the first
    owner]"""
    oidc_issuer: str = ""
    """OpenID provider at which owners and reviewers sign in: https://id.example.org."""
    oidc_client: str = ""
    """Client id of this server there; the secret is read from TUTELAGE_OIDC_SECRET, or from the file that
    TUTELAGE_OIDC_SECRET_FILE names. The provider sends people back to PUBLIC-URL/sign-in/callback,
    whether one study is served or several."""
    proxy_user_header: str = ""
    """Header in which a proxy says who signed in there, such as X-Forwarded-User; needs --trusted-proxy."""
    trusted_proxy: tuple[str, ...] = ()
    """Addresses or networks of that proxy; from any other the header counts for nothing."""
    owners: tuple[str, ...] = ()
    """Owners among those who sign in: e-mail addresses, domains (@example.org), or names of the proxy."""
    reviewers: tuple[str, ...] = ()
    """Reviewers among them."""
    webhook: str = ""
    """Address that is told as JSON what comes into the inbox, every minute where there is something; signed with
    TUTELAGE_WEBHOOK_SECRET, if that is set."""
    mail_to: str = ""
    """E-mail address that is told the same; needs --smtp."""
    mail_from: str = ""
    """Sender of mails: of these, and of personal links that owners mail from the page of a rater, which needs --smtp
    too. [default: the address of --mail-to]"""
    mail_language: str = ""
    """Language of these mails: en, de, es, zh or ar; the usual one of the study when empty."""
    engine: config.EngineName = "auto"
    """How models of live conversations compute that are folders: plain, by transformers' modules; cpu, by kernels
    compiled for this processor; auto: cpu on a processor, else plain."""
    smtp: str = ""
    """Mail server: smtp://user@mail.example.org:587; its password is read from TUTELAGE_SMTP_PASSWORD."""

    def __post_init__(self) -> None:
        if bool(self.mail_to or self.mail_from) != bool(self.smtp):
            raise TutelageError(
                "Mail takes --smtp, the server, and --mail-to, who is told of the inbox, or --mail-from, who sends "
                "raters their links."
            )
        if self.mail_language and not self.mail_to:
            raise TutelageError("--mail-language is that of the mails to --mail-to; give that too.")
        if bool(self.oidc_issuer) != bool(self.oidc_client):
            raise TutelageError("Signing in at a provider takes both --oidc-issuer and --oidc-client.")
        if bool(self.proxy_user_header) != bool(self.trusted_proxy):
            raise TutelageError("Signing in by a proxy takes both --proxy-user-header and --trusted-proxy.")
        if bool(self.owners or self.reviewers) != bool(self.oidc_issuer or self.proxy_user_header):
            raise TutelageError(
                "Signing in takes --owners or --reviewers, who may, and --oidc-issuer or --proxy-user-header."
            )
        if self.more and self.name:
            raise TutelageError("--name names one study of a file; leave it out beside several.")


@dataclass(frozen=True, kw_only=True)
class Invite(CollectSettings):
    """Print a link that lets somebody in."""

    role: Literal["rater", "reviewer", "owner"] = "rater"
    """What whoever follows the link may do."""
    rater: str = ""
    """Bring back this rater, who is known already, instead of inviting somebody new."""
    names: Path | None = None
    """File with one name on each line, or a table (CSV) with the columns name and email: print a table of their
    personal links, which work as often as needed. With --smtp each is mailed, and the table says which were sent."""
    email: str = ""
    """Mail the personal link of --rater to this address instead of printing it. Addresses are kept nowhere."""
    smtp: str = ""
    """Mail server: smtp://user@mail.example.org:587; its password is read from TUTELAGE_SMTP_PASSWORD."""
    mail_from: str = ""
    """Sender of the mails."""
    uses: int = 1
    """How many people may use the link."""
    days: float = 14.0
    """How long the link is good for."""
    note: str = ""
    """For your own memory: whom it is for."""
    url: str = "http://127.0.0.1:8000"
    """Where the site is reached."""

    def __post_init__(self) -> None:
        if self.rater and self.names is not None:
            raise TutelageError("Personal links are for --rater or for --names; give one of them.")
        if self.email and not self.rater:
            raise TutelageError("--email is the address of --rater; those of --names stand in its file.")
        if len({bool(self.smtp), bool(self.mail_from), bool(self.email or (self.smtp and self.names))}) > 1:
            raise TutelageError(
                "A link is mailed with --smtp and --mail-from, to --email or to the addresses of --names."
            )


@dataclass(frozen=True, kw_only=True)
class Backup(CollectSettings):
    """Write the whole database into one file, from which `collect restore` makes it again, in SQLite or PostgreSQL.
    Answers may go on arriving meanwhile."""

    out: Path
    """File to write, such as study.backup; it must not exist. It holds everything, also names and hashes of links."""


@dataclass(frozen=True, kw_only=True)
class Restore(CollectSettings):
    """Make the database of a study again from a file that `collect backup` wrote. Where there is one already, nothing
    is done."""

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="BACKUP")]
    """The file."""
