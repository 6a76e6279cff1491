"""Checks of a study: its database, and problems its owner should know before the next rater arrives."""

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.doctor.machine import GIB, Check, State
from tutelage.data.tables import read_table
from tutelage.data.vote_rows import rejected_rows
from tutelage.people import Rater, Store, Study, check, count_notices, list_raters, list_studies, open_store, open_study
from tutelage.people.rater_progress import find_shortage
from tutelage.people.statistics.cache import Keeper, StudyStatistics
from tutelage.people.store.backup import newest_archive, newest_backup
from tutelage.people.store.bulk import VOTES_IMPORTED
from tutelage.people.store.consents import raters_due
from tutelage.people.store.conversations import find_live_models
from tutelage.people.store.database import database_revision, with_backup
from tutelage.people.store.engine import DamagedStore
from tutelage.people.store.events import list_events
from tutelage.people.store.inbox import QUIET
from tutelage.people.store.item_catalogue import ItemFilter, find_items
from tutelage.people.store.migrations import newest
from tutelage.people.web.names import KINDS, SINGULAR

MIGRATION = "The next command that opens it, such as `tutelage collect status`, makes a backup and migrates it."
LITTLE_DISK = 1.0
"""GiB below which a warning is given; a backup, which precedes a migration, takes as much as the database."""
DAY_MS = 86_400_000
OLD_BACKUP = 7
"""Days after which a backup is too old if new answers have arrived."""
MOST_IMPORTS = 100
"""Maximum number of imports of a study that are checked."""
AWAY = 14
"""Days without activity after which a rater is inactive."""


def check_study(address: str) -> tuple[Check, ...]:
    """Check the database at an address, and every study in it.

    Nothing is changed: an older database is not migrated, and its studies are not checked.
    """
    try:
        where, revision = database_revision(address)
        if revision != newest():
            text = f"{where}, tables of version {revision}; the newest is {newest()}"
            return (Check.warning("database", text, MIGRATION),)
        store = open_store(address, create=False)
    except TutelageError as error:
        return (Check("database", "cannot be used", "fault", str(error)),)
    with closing(store):
        try:
            return tuple(_checks(store, revision))
        except DamagedStore as error:
            advice = str(with_backup(error, store))
            return (Check("database", f"{store.address} is damaged", "fault", advice),)


def _checks(store: Store, revision: str) -> Iterator[Check]:
    try:
        check(store)
        with store.write():
            pass
    except DamagedStore:
        raise
    except TutelageError as error:
        yield Check("database", f"{store.address} cannot be written", "fault", str(error))
        return
    yield Check("database", f"{store.address}, tables of version {revision}, sound and writable")
    if store.path is not None and os.name == "posix" and store.path.stat().st_mode & 0o007:
        text = f"other users of this machine can read {store.path}, which holds names and answers"
        yield Check.warning("permissions", text, f"`chmod o= {shlex.quote(str(store.path))}*` forbids it.")
    studies = [open_study(store, name) for name in list_studies(store)]
    yield from _disk(store)
    yield from _backups(store, studies)
    for study in studies:
        yield from _study(store, study, alone=len(studies) == 1)


def _disk(store: Store) -> Iterator[Check]:
    if store.path is None:
        return
    free = shutil.disk_usage(store.path.parent).free / GIB
    size = store.path.stat().st_size / GIB
    little = free < max(LITTLE_DISK, size)
    advice = "Free some space: a full disk refuses answers, and a backup takes as much as the database."
    text = f"{free:,.1f} GiB free, the database takes {size:,.3f}"
    yield Check.warning("disk", text, advice, when=little)


def _backups(store: Store, studies: Sequence[Study]) -> Iterator[Check]:
    backup = max(filter(None, (newest_backup(store), newest_archive(store))), key=lambda each: each[1], default=None)
    days = None if backup is None else (store.now() - backup[1]) / DAY_MS
    text = "none" if backup is None or days is None else f"{backup[0]}, {counted(round(days), 'day')} old"
    answered = any(rater.tallies.answered for study in studies for rater in list_raters(store, study.id))
    due = answered and (days is None or days > OLD_BACKUP)
    advice = "Keep a copy on another disk: `tutelage collect backup` writes one while raters go on."
    yield Check.warning("backup", text, advice, when=due)


def _study(store: Store, study: Study, *, alone: bool) -> Iterator[Check]:
    """Check one study; if its database holds others, subjects begin with its name."""
    whole = Keeper(store).compute(study)
    raters = [
        rater
        for rater in list_raters(store, study.id)
        if rater.role == "rater" and rater.excluded is None and rater.forgotten is None
    ]
    parts: tuple[Callable[[], Iterator[Check]], ...] = (
        lambda: _items(store, study, whole),
        lambda: _quotas(store, study),
        lambda: _overlap(study, whole),
        lambda: _golds(store, study, whole),
        lambda: _raters(raters, whole),
        lambda: _inactive(store, study, raters, whole),
        lambda: _inbox(store, study),
        lambda: _consent(study, raters),
        lambda: _retention(store, study),
        lambda: _imports(store, study),
    )
    for part in parts:
        for each in part():
            subject = each.subject if alone else f"{study.name}: {each.subject}"
            yield Check(subject, each.result, each.state, each.advice)


def _items(store: Store, study: Study, whole: StudyStatistics) -> Iterator[Check]:
    counts = whole.survey.counts
    text = f"{counts.complete:,} of {counts.items:,} have all their answers, the study is {study.state}"
    state: State = "ok"
    advice = ""
    if study.state == "open" and not counts.items and find_live_models(store, study.id) is None:
        state = "fault"
        advice = "Raters are asked nothing: `tutelage collect init --from-pairs FILE` makes a study with pairs."
    elif study.state == "open" and counts.items and counts.complete == counts.items:
        state = "warning"
        advice = "Raters are asked nothing more: `collect export` writes the votes, `collect next` adds a round."
    elif study.state == "paused" and counts.complete < counts.items:
        state, advice = "warning", "Raters are asked nothing: open the study on the page Settings."
    yield Check("items", text, state, advice)


def _quotas(store: Store, study: Study) -> Iterator[Check]:
    shortage = find_shortage(store, study)
    if shortage is not None:
        text = f"they ask for {counted(shortage.asked, 'more answer')}, and the items take {shortage.left:,}"
        advice = "Add items (`tutelage collect next`), raise the raters for an item, or lower the quotas."
        yield Check.warning("quotas", text, advice)


def _overlap(study: Study, whole: StudyStatistics) -> Iterator[Check]:
    agreement, pairs = whole.statistics.agreement, sum(each.pairs for each in whole.survey.rounds)
    few = study.plan.overlap < 2 and not pairs
    yield Check.warning(
        "overlap",
        f"{counted(study.plan.overlap, 'rater')} for an item, agreement is measured on "
        f"{counted(agreement.items, 'item')}",
        "Agreement needs items with two raters: raise the raters for an item on the page Settings.",
        when=few,
    )


def _golds(store: Store, study: Study, whole: StudyStatistics) -> Iterator[Check]:
    number = find_items(store, study.id, ItemFilter(pool="gold"), limit=1).total
    missing = bool(study.plan.gold_rate and whole.survey.counts.items and not number)
    yield Check.warning(
        "golds",
        f"{counted(number, 'question')} with a known answer, wanted in {study.plan.gold_rate:.0%} of the questions",
        "Nothing measures attention: `tutelage collect init --golds FILE` brings ten to twenty questions beyond doubt;"
        " without them, set their share to 0 on the page Settings.",
        when=missing,
    )


def _raters(raters: list[Rater], whole: StudyStatistics) -> Iterator[Check]:
    advice = "`tutelage collect invite` makes a link for raters."
    yield Check.warning("raters", f"{len(raters):,}", advice, when=not raters)
    for rater in raters:
        flags = whole.statistics.raters[rater.id].flags
        if flags:
            advice = "Read the rater's answers on the page Raters, and exclude them there if they are careless."
            yield Check.warning(f"rater {rater.name}", "; ".join(flags), advice)


def _inactive(store: Store, study: Study, raters: list[Rater], whole: StudyStatistics) -> Iterator[Check]:
    counts = whole.survey.counts
    if study.state != "open" or counts.complete == counts.items:
        return
    imported = [rater.id for rater in raters if rater.consented is None and rater.tallies.answered]
    people = [r for r in raters if r.kind == "human" and r.state != "paused" and r.id not in imported]
    away = [rater.name for rater in people if max(rater.seen or 0, rater.created) < store.now() - AWAY * DAY_MS]
    if away:
        text = f"{len(away):,} of {len(people):,} not seen for {counted(AWAY, 'day')}: {', '.join(away[:5])}"
        advice = "`tutelage collect invite --rater NAME` prints a link back; without a name, one for others."
        yield Check.warning("inactive", text + (", …" if len(away) > 5 else ""), advice)


def _inbox(store: Store, study: Study) -> Iterator[Check]:
    waiting = {kind: n for kind, n in count_notices(store, study.id).items() if kind not in QUIET}
    names = {kind: SINGULAR[kind] if n == 1 else KINDS[kind][0].lower() for kind, n in waiting.items()}
    contents = ", ".join(f"{waiting[kind]:,} {names[kind]}" for kind in KINDS if kind in waiting)
    text = f"waiting: {contents}" if contents else "nothing waits"
    yield Check.warning("inbox", text, "Read and close them on the page Inbox.", when=bool(contents))


def _consent(study: Study, raters: list[Rater]) -> Iterator[Check]:
    people = [rater for rater in raters if rater.kind == "human" and rater.consented is not None]
    behind = [rater for rater in people if rater.agreed != study.consent]
    text = f"version {study.consent}" if study.consent else "the standard text"
    yield Check.warning(
        "consent",
        f"{len(people) - len(behind):,} of {counted(len(people), 'person')} who agreed to a text agreed to {text}",
        "The others are asked when they come next, and give no answers before.",
        when=bool(behind),
    )


def _retention(store: Store, study: Study) -> Iterator[Check]:
    due = raters_due(store, study.id)
    if not due:
        yield Check("retention", "no rater is overdue")
        return
    text = f"overdue for {len(due):,}: {', '.join(rater.name for rater in due[:5])}"
    advice = "`tutelage collect forget --due` forgets them; a running `collect serve` does so every hour."
    yield Check("retention", text, "fault", advice)


def _imports(store: Store, study: Study) -> Iterator[Check]:
    """Check imports of votes for work that a platform rejected. Those without a count, by an earlier version of the
    program, contain it without a remark: their files are read again."""
    advice = "Import the table into a new study, or exclude the raters of these rows on the page Raters."
    sources: set[str] = set()
    for event in list_events(store, study.id, action=VOTES_IMPORTED, limit=MOST_IMPORTS):
        source = Path(event.subject)
        if event.detail.get("rejected"):
            text = f"{source}: {counted(int(str(event.detail['rejected'])), 'row')} of rejected work, kept by choice"
            yield Check("imports", text)
        if "rejected" in event.detail or source.is_dir() or event.subject in sources:
            continue
        sources.add(event.subject)
        count = _count_rejected(source)
        if count is None:
            text, remedy = f"{source} cannot be read here", "Look whether it holds work that a platform rejected."
            yield Check.warning("imports", text, remedy)
        else:
            text = f"{source}: {counted(count, 'row')} of work that a platform rejected"
            yield Check.warning("imports", text, advice, when=count > 0)


def _count_rejected(source: Path) -> int | None:
    """Rows of rejected work in a table; None if it cannot be read."""
    try:
        return len(rejected_rows(read_table(source), used=())) if source.is_file() else None
    except TutelageError:
        return None
