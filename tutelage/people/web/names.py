"""Readable names of the actions, subjects and details in the history, and of the notices in the inbox."""

import re
from collections.abc import Callable, Mapping

from tutelage.people.languages import Sentence, counted

ACTIONS: Mapping[str, Sentence] = {
    "backup_written": Sentence("backup written"),
    "alarm_set": Sentence("least agreement set"),
    "consent": Sentence("agreed to take part"),
    "consent_version": Sentence("new text of consent"),
    "exclude": Sentence("excluded"),
    "exported": Sentence("exported"),
    "flagged": Sentence("flagged"),
    "forgotten": Sentence("forgotten"),
    "include": Sentence("taken back"),
    "invite_accepted": Sentence("invitation accepted"),
    "invite_created": Sentence("invitation made"),
    "invite_revoked": Sentence("invitation withdrawn"),
    "items_added": Sentence("items added"),
    "live_models": Sentence("models of the live conversations set"),
    "notice_reopened": Sentence("notice opened again"),
    "notices_closed": Sentence("notices closed"),
    "overlap_set": Sentence("raters per item changed"),
    "owner_removed": Sentence("access of an owner taken away"),
    "owner_restored": Sentence("access of an owner restored"),
    "personal_link": Sentence("personal link made"),
    "plan_changed": Sentence("distribution of work changed"),
    "priorities_set": Sentence("priorities set"),
    "rater_active": Sentence("questions go on"),
    "rater_added": Sentence("rater added"),
    "rater_paused": Sentence("questions paused"),
    "rater_training": Sentence("practice begun"),
    "recruiting_changed": Sentence("recruiting changed"),
    "reviewer_removed": Sentence("access of a reviewer taken away"),
    "reviewer_restored": Sentence("access of a reviewer restored"),
    "role_changed": Sentence("role changed"),
    "round_opened": Sentence("round opened"),
    "sessions_ended": Sentence("sessions ended"),
    "study_closed": Sentence("study closed"),
    "study_created": Sentence("study made"),
    "study_languages": Sentence("languages changed"),
    "study_open": Sentence("study opened"),
    "study_paused": Sentence("study paused"),
    "study_version": Sentence("new version of the question"),
    "token_created": Sentence("token made"),
    "token_revoked": Sentence("token revoked"),
    "training_failed": Sentence("practice failed"),
    "training_passed": Sentence("practice passed"),
    "visit_began": Sentence("visit began"),
    "visit_complete": Sentence("visit complete"),
    "visit_left": Sentence("visit left"),
    "visit_screened": Sentence("screened out"),
    "votes_imported": Sentence("votes imported"),
    "webhook_added": Sentence("webhook added"),
    "webhook_removed": Sentence("webhook removed"),
    "webhook_rotated": Sentence("secret of a webhook renewed"),
}
"""Names of actions, by the key that the store records."""
DETAILS: Mapping[str, Sentence] = {
    "active": Sentence("active"),
    "again": Sentence("second visit"),
    "answers": Sentence("answers"),
    "backups": Sentence("backups"),
    "before": Sentence("before"),
    "bound": Sentence("bound"),
    "code": Sentence("code"),
    "corrections": Sentence("better responses"),
    "criteria": Sentence("criteria"),
    "currency": Sentence("currency"),
    "days": Sentence("days"),
    "exports": Sentence("exports"),
    "fee": Sentence("fee"),
    "flags": Sentence("flags"),
    "gold_rate": Sentence("share of known answers"),
    "guidelines": Sentence("guidelines"),
    "host": Sentence("host"),
    "hours": Sentence("hours"),
    "items": Sentence("items"),
    "kind": Sentence("kind"),
    "known": Sentence("known already"),
    "language": Sentence("language"),
    "languages": Sentence("languages"),
    "lease_seconds": Sentence("seconds reserved"),
    "lineage": Sentence("lineage"),
    "minutes": Sentence("minutes"),
    "models": Sentence("models"),
    "name": Sentence("name"),
    "new": Sentence("new"),
    "openings": Sentence("openings"),
    "overlap": Sentence("raters per item"),
    "pay": Sentence("pay"),
    "places": Sentence("places"),
    "platform": Sentence("platform"),
    "policy": Sentence("order of items"),
    "prompts": Sentence("prompts"),
    "question": Sentence("question"),
    "quota": Sentence("most answers"),
    "rater": Sentence("rater"),
    "reason": Sentence("reason"),
    "repeat_rate": Sentence("share asked again"),
    "responses": Sentence("responses"),
    "retention_days": Sentence("days kept"),
    "return_url": Sentence("return link"),
    "right": Sentence("right"),
    "rights": Sentence("rights"),
    "role": Sentence("role"),
    "scale": Sentence("scale"),
    "scope": Sentence("what"),
    "screened_code": Sentence("screen-out code"),
    "seconds": Sentence("seconds"),
    "sessions": Sentence("sessions"),
    "sha256": Sentence("checksum"),
    "source": Sentence("source"),
    "spans": Sentence("categories of wrong words"),
    "text": Sentence("text"),
    "topics": Sentence("topics"),
    "training_pass": Sentence("share of practice"),
    "turns": Sentence("turns"),
    "uses": Sentence("uses"),
    "version": Sentence("version"),
    "votes": Sentence("votes"),
    "why": Sentence("why"),
}
"""Names of the parts of a detail, by the key that the store records."""
_NUMBERED: Mapping[str, Callable[[int], Sentence]] = {
    "export": lambda n: Sentence("export %(number)s", number=n),
    "invite": lambda n: Sentence("invitation %(number)s", number=n),
    "item": lambda n: Sentence("item %(number)s", number=n),
    "notice": lambda n: Sentence("notice %(number)s", number=n),
    "round": lambda n: Sentence("round %(number)s", number=n),
    "token": lambda n: Sentence("token %(number)s", number=n),
    "webhook": lambda n: Sentence("webhook %(number)s", number=n),
}
_COUNTED: Mapping[str, Callable[[int], Sentence]] = {
    "items": lambda n: counted("%(count)s item", "%(count)s items", count=n),
    "judgements": lambda n: counted("%(count)s judgement", "%(count)s judgements", count=n),
    "notices": lambda n: counted("%(count)s notice", "%(count)s notices", count=n),
}


def subject_of(written: str) -> str:
    """The subject of an event: a numbered record (`invite 3`) or a count (`12 items`) as a sentence, a name
    unchanged."""
    numbered = re.fullmatch(r"([a-z]+) (\d{1,15})", written, re.ASCII)
    if numbered and numbered[1] in _NUMBERED:
        return _NUMBERED[numbered[1]](int(numbered[2]))
    several = re.fullmatch(r"(\d{1,15}) ([a-z]+)", written, re.ASCII)
    if several and several[2] in _COUNTED:
        return _COUNTED[several[2]](int(several[1]))
    return written


KINDS = {
    "flag": (Sentence("Flags"), Sentence("something is wrong with a response")),
    "skip": (Sentence("Skipped"), Sentence("a rater could not judge")),
    "practice": (Sentence("Practice"), Sentence("a rater failed the practice, and waits for your decision")),
    "note": (Sentence("Notes"), Sentence("what raters wrote to you")),
    "disagreement": (Sentence("Disagreements"), Sentence("all answers are given, without a majority")),
    "model": (Sentence("Models"), Sentence("a model of the live conversations did not answer a rater")),
    "round": (Sentence("Rounds"), Sentence("every item of a round has all its answers")),
    "agreement": (Sentence("Agreement"), Sentence("it fell below the bound that you set on the page Programs")),
    "reason": (Sentence("Reasons"), Sentence("why raters answered as they did; they do not count as open notices")),
}
"""The kinds of notices: name of the tab, and explanation."""
SINGULAR = {
    "flag": Sentence("flag"),
    "skip": Sentence("skipped"),
    "practice": Sentence("failed practice"),
    "note": Sentence("note"),
    "disagreement": Sentence("disagreement"),
    "model": Sentence("model"),
    "round": Sentence("full round"),
    "agreement": Sentence("low agreement"),
    "reason": Sentence("reason"),
}
"""Names of a single notice."""
