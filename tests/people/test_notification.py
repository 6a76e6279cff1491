"""Messages about the inbox and occasions: what they hold, when they are sent, what a failing channel does not lose."""

import hashlib
import hmac
import json
import logging
from email.message import EmailMessage
from typing import Any, ClassVar

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Answer,
    Assignment,
    Store,
    add_items,
    add_rater,
    close_notices,
    exclude,
    list_notices,
    set_languages,
    set_overlap,
    submit,
    write_note,
)
from tutelage.people.mail import MailServer
from tutelage.people.notification import (
    LEAST_ITEMS,
    LINES,
    InboxMessage,
    Lookout,
    MailChannel,
    Notifier,
    WebhookChannel,
    deliver,
    send_test,
)
from tutelage.people.programs.signatures import verify_webhook
from tutelage.people.settings import NewWebhook
from tutelage.people.store.conversations import LiveModels, set_live_models
from tutelage.people.store.inbox import notice_round, set_alarm
from tutelage.people.store.webhooks import WAITS_MS, add_webhook, list_webhooks

from .worlds import Clock, asked, better, raters_of, records, study_of, work


class Recorder:
    """A channel that keeps what it is sent, and fails when it is told to."""

    name = "a recorder"

    def __init__(self) -> None:
        self.sent: list[InboxMessage] = []
        self.fails = False

    def send(self, message: InboxMessage) -> None:
        if self.fails:
            raise OSError("no route")
        self.sent.append(message)


def flag(store: Store, rater: int, reason: str = "It stops.") -> None:
    submit(store, asked(store, rater).id, Answer("left", 1, flags=("cut_off",), reason=reason))


def test_what_is_new_is_sent_once_and_in_one_message(lite: Store) -> None:
    study = study_of(lite, 9)
    anna = add_rater(lite, study.id, "anna").id
    flag(lite, anna)
    recorder = Recorder()
    notifier = Notifier(lite, study.id, [recorder], "https://rate.example.org/owner/inbox")
    notifier.look()
    assert recorder.sent == []  # it was there before
    flag(lite, anna)
    write_note(lite, anna, "May I look things up?")
    submit(lite, asked(lite, anna).id, Answer("left", 1, reason="a reason of an ordinary answer"))
    notifier.look()
    notifier.look()
    (message,) = recorder.sent
    assert [notice.kind for notice in message.notices] == ["flag", "note"]
    assert message.subject() == "tutoring: 1 × flagged, 1 × note"
    assert "- flagged (Cut off) by anna on “Question" in message.text()
    assert "- note by anna: May I look things up?" in message.text()
    assert message.text().endswith("https://rate.example.org/owner/inbox\n")
    assert message.waiting["flag"] == 2


def test_a_channel_that_fails_loses_nothing_and_holds_up_no_other(
    lite: Store, caplog: pytest.LogCaptureFixture
) -> None:
    study = study_of(lite, 9)
    anna = add_rater(lite, study.id, "anna").id
    broken, sound = Recorder(), Recorder()
    notifier = Notifier(lite, study.id, [broken, sound])
    broken.fails = True
    flag(lite, anna)
    with caplog.at_level(logging.WARNING, "tutelage"):
        notifier.look()
    assert "could not be sent to a recorder: no route" in caplog.text
    broken.fails = False
    flag(lite, anna)
    notifier.look()
    assert [len(message.notices) for message in sound.sent] == [1, 1]
    assert [len(message.notices) for message in broken.sent] == [2]


def test_what_was_closed_in_the_meantime_is_not_sent_and_much_is_cut(lite: Store) -> None:
    study = study_of(lite, 1)
    anna = add_rater(lite, study.id, "anna").id
    recorder = Recorder()
    notifier = Notifier(lite, study.id, [recorder])
    write_note(lite, anna, "never mind")
    close_notices(lite, study.id)
    notifier.look()
    assert recorder.sent == []
    for number in range(LINES + 5):
        write_note(lite, anna, f"note {number} " + "x" * 1_000)
    notifier.look()
    (message,) = recorder.sent
    assert "- and 5 more" in message.text()
    assert len(message.text()) < 300 * LINES


def test_a_webhook_is_signed_and_refusals_are_noticed(lite: Store, hook: Any) -> None:
    url, came = hook
    study = study_of(lite, 3)
    anna = add_rater(lite, study.id, "anna").id
    notifier = Notifier(lite, study.id, [WebhookChannel(f"{url}/hook", "geheim"), WebhookChannel(f"{url}/broken")])
    flag(lite, anna, "<b>so</b> ü")
    notifier.look()
    (headers, body), _ = came
    signature = hmac.new(b"geheim", body, hashlib.sha256).hexdigest()
    assert headers["x-tutelage-signature"] == f"sha256={signature}"
    sent = json.loads(body)
    assert sent["study"] == "tutoring"
    pseudonym = f"rater-{anna}"
    assert [notice["rater"] for notice in sent["notices"]] == [pseudonym]
    assert f"by {pseudonym} on" in sent["text"]
    assert b"anna" not in body
    assert [(notice["kind"], notice["said"], notice["flags"]) for notice in sent["notices"]] == [
        ("flag", "<b>so</b> ü", ["cut_off"])
    ]
    assert "geheim" not in repr(WebhookChannel(url, "geheim"))
    notifier.look()
    assert len(came) == 3  # the one that answered 500 is told again


class FakeServer:
    """A mail server as smtplib shows it."""

    log: ClassVar[list[Any]] = []
    tls = True

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.log.append((host, port))

    def __enter__(self) -> "FakeServer":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def has_extn(self, name: str) -> bool:
        return self.tls

    def starttls(self) -> None:
        self.log.append("tls")

    def login(self, user: str, password: str) -> None:
        self.log.append((user, password))

    def send_message(self, mail: EmailMessage) -> None:
        self.log.append(mail)


def test_mail_is_sent_over_tls_and_a_subject_is_one_line(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smtplib.SMTP", FakeServer)
    monkeypatch.setattr(FakeServer, "log", [])
    message = InboxMessage("evil\r\nBcc: all@example.org", (), {}, "")
    mail = MailChannel("boss@example.org", MailServer("smtp://me%40x@mail.example.org:587", password="pw"))
    mail.send(message)
    place, tls, login, sent = FakeServer.log
    assert (place, tls, login) == (("mail.example.org", 587), "tls", ("me@x", "pw"))
    assert sent["Subject"] == "evil Bcc: all@example.org:"
    assert sent["To"] == sent["From"] == "boss@example.org"
    monkeypatch.setattr(FakeServer, "tls", False)
    with pytest.raises(TutelageError, match="TLS"):
        mail.send(message)
    assert FakeServer.log[4:] == [("mail.example.org", 587)]


@for_each(
    [
        (lambda: WebhookChannel("hooks.example.org"), "URL"),
        (lambda: MailChannel("boss", MailServer("smtp://x")), "e-mail"),
        (lambda: MailChannel("a@b\nBcc: c@d", MailServer("smtp://x")), "e-mail"),
        (lambda: MailServer("mail.example.org"), "mail.example.org"),
        (lambda: MailServer("smtp://me:secret@x"), "TUTELAGE_SMTP_PASSWORD"),
    ]
)
def test_channels_that_make_no_sense_are_refused(make: Any, complaint: str) -> None:
    with pytest.raises(TutelageError, match=complaint):
        make()


@pytest.mark.parametrize(("chosen", "told"), [("", "gemeldet"), ("es", "con problema señalado")])
def test_mail_is_in_the_language_of_the_study_or_the_chosen_one(
    lite: Store, monkeypatch: pytest.MonkeyPatch, chosen: str, told: str
) -> None:
    monkeypatch.setattr("smtplib.SMTP", FakeServer)
    monkeypatch.setattr(FakeServer, "log", [])
    study = study_of(lite, 3)
    set_languages(lite, study.id, ("de",))
    anna = add_rater(lite, study.id, "anna").id
    recorder = Recorder()
    notifier = Notifier(lite, study.id, [MailChannel("a@b", MailServer("smtp://x"), language=chosen), recorder])
    flag(lite, anna)
    notifier.look()
    mail = FakeServer.log[-1]
    assert mail["Subject"] == f"tutoring: 1 × {told}"
    assert f"- {told} ({ {'': 'Abgeschnitten', 'es': 'Cortada'}[chosen] })" in mail.get_content()
    assert recorder.sent[0].subject() == "tutoring: 1 × flagged"  # programs read English


def kinds(store: Store, study: int) -> list[str]:
    return [notice.kind for notice in list_notices(store, study)][::-1]


def test_a_round_is_full_when_every_item_has_its_answers_and_again_when_more_came(store: Store) -> None:
    study = study_of(store, 3)
    raters = raters_of(store, study, 2)
    lookout = Lookout(store, study.id)
    lookout.look()
    work(store, raters[:1])
    lookout.look()
    assert kinds(store, study.id) == []
    work(store, raters[1:])
    for _ in range(2):
        lookout.look()
        Lookout(store, study.id).look()  # as after a restart
    assert kinds(store, study.id) == ["round"]
    add_items(store, study.id, *records(1, start=3))
    lookout.look()
    assert kinds(store, study.id) == ["round"]
    work(store, raters)
    lookout.look()
    assert [dict(notice.facts) for notice in list_notices(store, study.id)] == [
        {"round": 1, "items": 4},
        {"round": 1, "items": 3},
    ]


def test_what_an_owner_changes_can_fill_a_round(lite: Store) -> None:
    study = study_of(lite, 3)
    work(lite, raters_of(lite, study, 1))
    lookout = Lookout(lite, study.id)
    set_overlap(lite, study.id, 1, ["c0", "c1"])
    lookout.look()
    assert kinds(lite, study.id) == []
    exclude(lite, study.id, "item", "c2", "no question at all")
    lookout.look()
    assert [dict(notice.facts) for notice in list_notices(lite, study.id)] == [{"round": 1, "items": 2}]


def test_a_round_of_live_conversations_is_never_full(lite: Store) -> None:
    study = study_of(lite, 1)
    set_live_models(lite, study.id, LiveModels("a", "b", 4, (), {}, 1))
    work(lite, raters_of(lite, study, 2))
    Lookout(lite, study.id).look()
    assert kinds(lite, study.id) == []


@pytest.mark.parametrize("pairs", [LEAST_ITEMS - 1, LEAST_ITEMS])
def test_agreement_below_the_bound_is_told_once_there_is_enough_to_tell_by(lite: Store, pairs: int) -> None:
    study = study_of(lite, pairs)
    first, second = raters_of(lite, study, 2)
    set_alarm(lite, study.id, 0.6)

    def contrary(question: Assignment) -> Answer:
        return Answer("right" if better(question).choice == "left" else "left", 2)

    work(lite, [first])
    work(lite, [second], contrary)
    for _ in range(2):
        Lookout(lite, study.id).look()
    told = [notice for notice in list_notices(lite, study.id) if notice.kind == "agreement"]
    assert [dict(notice.facts) for notice in told] == (
        [{"agreement": 0.0, "bound": 0.6, "items": pairs}] if pairs == LEAST_ITEMS else []
    )


def test_a_full_round_is_told_by_the_mechanism_of_the_inbox(store: Store, hook: Any) -> None:
    url, came = hook
    study = study_of(store, 2)
    _, secret = add_webhook(store, study.id, NewWebhook(f"{url}/hook", ("round",)))
    raters = raters_of(store, study, 2)
    for _ in range(2):  # the second one is that of a server that was started again
        notifier = Notifier(store, study.id, [], "https://rate.example.org/owner/inbox")
        notifier.look()
        work(store, raters)
        notifier.look()
        notifier.look()
    ((headers, body),) = came
    assert verify_webhook(secret, headers, body) == {
        "type": "round.full",
        "timestamp": "2023-11-14T22:13:20Z",
        "data": {"study": "tutoring", "inbox": "https://rate.example.org/owner/inbox", "round": 1, "items": 2},
    }
    assert headers["webhook-id"].startswith("msg_")
    assert headers["content-type"] == "application/json"


def test_notices_of_people_have_types_of_their_own(lite: Store, hook: Any) -> None:
    url, came = hook
    study = study_of(lite, 2)
    add_webhook(lite, study.id, NewWebhook(url, ("inbox",)))
    anna = add_rater(lite, study.id, "anna").id
    submit(lite, asked(lite, anna).id, Answer("left", 1, flags=("cut_off",), reason="It stops."))
    submit(lite, asked(lite, anna).id, Answer("left", 1, reason="a reason of an ordinary answer"))
    write_note(lite, anna, "May I look things up?")
    assert deliver(lite, study.id) == 2
    sent = [json.loads(body) for _, body in came]
    assert [(each["type"], each["data"]["said"]) for each in sent] == [
        ("inbox.flag", "It stops."),
        ("inbox.note", "May I look things up?"),
    ]


@pytest.mark.parametrize(
    ("path", "problem"), [("/broken", "answered with status 500"), ("/moved", "answered with status 307")]
)
def test_what_does_not_arrive_comes_again_under_the_same_id(
    lite: Store, clock: Clock, hook: Any, caplog: pytest.LogCaptureFixture, path: str, problem: str
) -> None:
    url, came = hook
    study = study_of(lite, 1)
    add_webhook(lite, study.id, NewWebhook(url + path, ("round",)))
    for number in (1, 2):
        notice_round(lite, study.id, number, 1)
    with caplog.at_level(logging.WARNING, "tutelage"):
        assert deliver(lite, study.id) == 0
    assert len(came) == 1  # the second message does not knock at a door that just failed
    assert f"127.0.0.1 {problem}; it will be retried" in caplog.text
    assert list_webhooks(lite, study.id)[0].error == problem
    clock.seconds += WAITS_MS[0] / 1000
    deliver(lite, study.id)
    clock.seconds += WAITS_MS[0] / 1000
    deliver(lite, study.id)
    ids = [headers["webhook-id"] for headers, _ in came]
    assert len(ids) == 3
    assert len(set(ids)) == 2


def test_an_address_where_nobody_listens_is_named_without_its_path(
    lite: Store, caplog: pytest.LogCaptureFixture
) -> None:
    study = study_of(lite, 1)
    add_webhook(lite, study.id, NewWebhook("http://127.0.0.1:1/very/secret", ("round",)))
    notice_round(lite, study.id, 1, 1)
    with caplog.at_level(logging.WARNING, "tutelage"):
        assert deliver(lite, study.id) == 0
    assert "127.0.0.1 cannot be reached" in caplog.text
    assert "secret" not in caplog.text


def test_a_test_is_signed_and_says_what_went_wrong(lite: Store, hook: Any) -> None:
    url, came = hook
    study = study_of(lite, 1)
    number, secret = add_webhook(lite, study.id, NewWebhook(f"{url}/hook", ("round",)))
    broken, _ = add_webhook(lite, study.id, NewWebhook(f"{url}/broken", ("round",)))
    assert send_test(lite, study.id, number) == ""
    assert send_test(lite, study.id, broken) == "answered with status 500"
    headers, body = came[0]
    assert verify_webhook(secret, headers, body)["type"] == "test"
