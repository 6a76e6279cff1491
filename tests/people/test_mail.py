"""Personal links by e-mail: what is written, to whom, and what of it is kept."""

import logging
from email.message import EmailMessage
from typing import TypeAlias

import pytest

from tutelage.base.errors import TutelageError
from tutelage.people import Store, add_rater, list_events, list_invites, personal_link, set_languages
from tutelage.people.mail import MailServer, check_address, check_header, send_link

from .worlds import study_of

SITE = "https://rate.example.org"
Mailbox: TypeAlias = tuple[str, list[EmailMessage]]


@pytest.mark.parametrize(
    ("language", "subject", "days"),
    [("en", "Your link to tutoring", "for 30 days"), ("de", "Ihr Link zu tutoring", "30 Tage lang")],
)
def test_a_link_is_mailed_in_the_language_of_the_study(
    lite: Store, mailbox: Mailbox, language: str, subject: str, days: str
) -> None:
    url, came = mailbox
    study = study_of(lite, 1)
    set_languages(lite, study.id, (language,))
    token = personal_link(lite, add_rater(lite, study.id, "Zoë").id, days=30)
    send_link(lite, MailServer(url, "Study <study@x.org>"), token, "zoe@x.org", SITE, actor="boss")
    (mail,) = came
    assert (mail["From"], mail["To"], mail["Subject"]) == ("Study <study@x.org>", "zoe@x.org", subject)
    assert mail["Date"]
    assert mail["Message-ID"].endswith("@x.org>")
    text = mail.get_content()
    assert "Zoë" in text
    assert days in text
    assert text.splitlines()[2] == f"{SITE}/return/{token}"


def test_a_link_that_cannot_be_sent_is_withdrawn_and_neither_it_nor_the_address_is_kept(
    lite: Store, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    url, came = mailbox
    study = study_of(lite, 1)
    rater = add_rater(lite, study.id, "anna").id
    tokens = [personal_link(lite, rater) for _ in range(4)]
    caplog.set_level(logging.DEBUG)
    sound = MailServer(url, "study@x.org")
    gone = MailServer("smtp://127.0.0.1:1", "study@x.org")
    for server, token, to, complaint in (
        (sound, tokens[0], "anna@gone.example", "anna@gone.example.*550"),
        (gone, tokens[1], "anna@x.org", "127.0.0.1"),
        (sound, tokens[2], "a@x.org, b@x.org", "e-mail"),
    ):
        with pytest.raises(TutelageError, match=complaint):
            send_link(lite, server, token, to, SITE, actor="boss")
    assert came == []
    send_link(lite, sound, tokens[3], "anna@x.org", SITE, actor="boss")
    assert [bool(link.problem) for link in list_invites(lite, study.id, rater=rater)] == [False, True, True, True]
    kept = caplog.text + str(list_events(lite, study.id)) + str(list_invites(lite, study.id, rater=rater))
    assert not [secret for secret in (*tokens, "gone.example", "x.org") if secret in kept]


def test_a_password_is_sent_over_tls_only(mailbox: Mailbox) -> None:
    url, came = mailbox
    server = MailServer(url.replace("//", "//me@"), "study@x.org", password="geheim")
    assert "geheim" not in repr(server)
    with pytest.raises(TutelageError, match="TLS"):
        server.send("anna@x.org", "subject", "text")
    assert came == []


def test_an_address_is_one_and_a_header_is_a_line() -> None:
    check_address("anna@x.org")
    for wrong in ("anna", "anna@", "@x.org", "a@x.org, b@x.org", "a b@x.org", "a@x.org\nBcc: b@x.org", ""):
        with pytest.raises(TutelageError, match="e-mail"):
            check_address(wrong)
    check_header("Anna <anna@x.org>, bert@x.org")
    for wrong in ("anna", "a@x.org\r\nBcc: b@x.org"):
        with pytest.raises(TutelageError, match="e-mail"):
            check_header(wrong)
