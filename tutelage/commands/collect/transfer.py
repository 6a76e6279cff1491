"""`tutelage collect export` and `import`: a study as files, and files as a study."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collect.subcommands import given_values, settings_of
from tutelage.commands.study import CollectSettings, database, new_name, open_existing, operator, study_name
from tutelage.people.operations import EXPORT

if TYPE_CHECKING:
    from tutelage.data.tables import Table
    from tutelage.people import Store, Study
    from tutelage.people.redaction import Hints
    from tutelage.people.vote_tables import Columns


@dataclass(frozen=True, kw_only=True)
class ExportFiles(CollectSettings):
    """The files of an export."""

    out: Path
    """Folder to write; it must not exist."""
    redact: bool = False
    """Write [email], [phone], [iban], [card], [ip], [name] or [address] in place of what looks like personal data in
    texts that people wrote."""
    names: bool = False
    """Write the names of raters into raters.jsonl, the file about raters. Everywhere else, and without this everywhere,
    a pseudonym such as rater-7 stands for each: 7 is the rater's number in the study."""


Export = settings_of(EXPORT, ExportFiles)


@dataclass(frozen=True, kw_only=True)
class Import(CollectSettings):
    """Take in what exists elsewhere: a folder that `collect export` wrote (as a new study), or a table of votes."""

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """The folder, or a table of votes: csv, tsv, json, jsonl or parquet."""
    prompt: tuple[str, ...] = ("prompt",)
    """Column with the prompt; several are joined by blank lines."""
    a: str = "completion_a"
    """Column with the first response."""
    b: str = "completion_b"
    """Column with the second response."""
    choice_column: str = "preference"
    """Column with the choice: a, b, tie, both_bad, a-is-better, b-is-slightly-better, …"""
    choice: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """What another word for a choice means, such as 1=a; once for each word."""
    rater: str = "evaluator"
    """Column with the rater."""
    annotators: tuple[str, ...] = ()
    """Columns that each hold the choices of one rater, after whom they are named, in place of --choice-column and
    --rater; an empty cell is no vote."""
    model_a: str = ""
    """Column with the model of the first response, if there is one."""
    model_b: str = ""
    """Column with the model of the second response, if there is one."""
    time: str = ""
    """Column with the time of the vote, if there is one."""
    reason: str = ""
    """Column with the rater's reason, if there is one."""
    partial: bool = False
    """Leave out the votes that cannot be used; else nothing is imported where there is one."""

    def __post_init__(self) -> None:
        for each in self.choice:
            if "=" not in each:
                raise TutelageError(
                    f"--choice {each} does not say what it means: write --choice {each}=a for a choice, or "
                    f"--choice-column {each} for a column."
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


FEW = 5
"""Places with personal data that are shown."""


def write(settings: ExportFiles) -> int:
    """Export, and print what became of every vote."""
    from tutelage.people.export import export_study

    store, study = open_existing(settings)
    selection = EXPORT.settings(**given_values(settings))
    with closing(store):
        made = export_study(
            store, study.id, settings.out, selection,
            redact=settings.redact, names=settings.names, actor=operator(),
        )  # fmt: skip
    manifest = made.manifest
    fates = dict(manifest["judgements"])
    total = fates.pop("total")
    rows, corrections = manifest["rows"], dict(manifest["corrections"])
    print(f"{settings.out}: {counted(rows['preferences'], 'preference')}")
    if whole := corrections.pop("total"):
        print(
            f"{counted(whole, 'better response')} = {' + '.join(f'{n:,} {name}' for name, n in corrections.items())}: "
            f"{counted(rows['demonstrations'], 'demonstration')}, "
            f"{counted(rows['corrections'], 'pair')} with what they correct"
        )
    if rows["spans"]:
        print(f"{counted(rows['spans'], 'span')} marked as wrong")
    parts = " + ".join(f"{n:,} {name}" for name, n in fates.items() if n)
    print(f"{counted(total, 'judgement')} = {parts}" if parts else "no judgements yet")
    for note in manifest["notes"]:
        print(note)
    for line in _told(made.hints, redacted=settings.redact):
        print(line)
    return 0


def _told(hints: "Hints", *, redacted: bool) -> Iterator[str]:
    """What looks like personal data in the export: how much, the first places, and what to do."""
    if hints.problem:
        yield f"Nothing was looked for that is personal data. {hints.problem}"
    elif hints.places and redacted:
        yield f"Replaced in texts of people: {hints.sentence}. What was not found is still there."
    elif hints.places:
        yield f"Texts of people seem to hold personal data: {hints.sentence}."
        for place in hints.places[:FEW]:
            yield f"  {place.kind} in a {place.what} about {place.item}: …{place.before}{place.found}{place.after}…"
        yield "The page Export shows where; --redact writes [email], [phone] and so on in its place."


def read(settings: Import) -> int:
    """Import a folder as a study of its own, or the votes of a table into the named study, which is made where there is
    none."""
    source = Path(settings.source).expanduser()
    if source.is_dir():
        _restore(settings, source)
    else:
        _read_table(settings)
    return 0


def _restore(settings: Import, source: Path) -> None:
    from tutelage.people import open_store
    from tutelage.people.restoration import import_export

    with closing(open_store(database(settings))) as store:
        named = study_name(settings) or json.loads((source / "manifest.json").read_text())["study"]["name"]
        study = import_export(store, source, name=named, actor=operator())
        print(f"{study.name} was restored from {source} into {store.address}")


def _read_table(settings: Import) -> None:
    from tutelage.data.tables import read_table
    from tutelage.people import open_store
    from tutelage.people.vote_import import import_votes

    table, columns = read_table(settings.source), _columns(settings)
    address = database(settings)
    if "://" not in address and not Path(address).exists():
        _check(table, columns, settings)  # a file that is of no use makes no database
    with closing(open_store(address)) as store:
        study = _study(store, table, columns, settings)
        done = import_votes(store, study.id, table, columns, partial=settings.partial, actor=operator())
    print(
        f"{study.name}: {counted(done.votes, 'new vote')} by {counted(done.raters, 'new rater')} on "
        f"{counted(done.items, 'new question')}; "
        f"{done.revised:,} replaced an earlier one, {done.known:,} were known already."
    )
    for reason, (count, places) in done.dropped.items():
        print(f"  left out {count:,}: {reason} ({', '.join(places)}{', …' if count > len(places) else ''})")


def _columns(settings: Import) -> "Columns":
    from tutelage.people.vote_tables import Columns

    return Columns(
        prompt=settings.prompt,
        a=settings.a,
        b=settings.b,
        choice=settings.choice_column,
        rater=settings.rater,
        model_a=settings.model_a or None,
        model_b=settings.model_b or None,
        time=settings.time or None,
        reason=settings.reason or None,
        choices=_meanings(settings.choice),
        annotators=settings.annotators,
    )


def _study(store: "Store", table: "Table", columns: "Columns", settings: Import) -> "Study":
    """The named study, made where there is none and the table is fit to be imported."""
    from tutelage.people import create_study, list_studies, open_study

    name = new_name(settings)
    if name in list_studies(store):
        return open_study(store, name)
    _check(table, columns, settings)
    return create_study(store, name, actor=operator())


def _check(table: "Table", columns: "Columns", settings: Import) -> None:
    from tutelage.people import Presentation
    from tutelage.people.kinds import DEFAULT
    from tutelage.people.kinds.kind import Screen
    from tutelage.people.vote_import import usable_votes

    usable_votes(table, columns, DEFAULT, Screen(2, Presentation().scale), partial=settings.partial)


def _meanings(choices: Sequence[str]) -> dict[str, tuple[str, int]]:
    """The meanings of words, from WORD=MEANING; a word may hold the sign itself."""
    from tutelage.people.vote_tables import meaning_of

    pairs = [each.rpartition("=") for each in choices]
    return {word: meaning_of(meaning) for word, _, meaning in pairs}


def back_up(settings: Backup) -> int:
    """Write the database into a file, and print what it holds."""
    from tutelage.people import list_studies, open_store
    from tutelage.people.store.archive import write_archive
    from tutelage.people.store.backup import record_archive

    with closing(open_store(database(settings), create=False)) as store:
        written = write_archive(store, settings.out.expanduser())
        record_archive(store, settings.out.expanduser(), actor=operator())
        print(
            f"{settings.out}: {', '.join(list_studies(store))} from {store.address}\n"
            f"  {counted(sum(written.rows.values()), 'row')} in {counted(len(written.rows), 'table')} of version "
            f"{written.revision}, {counted(written.rows['judgement'], 'judgement')}\nIt holds names, answers and "
            "hashes of links: keep it where nobody else can read it."
        )
    return 0


def restore(settings: Restore) -> int:
    """Make the database again, and print what it holds."""
    from tutelage.people import list_studies, open_store
    from tutelage.people.store.archive import restore_archive

    address = database(settings)
    found = restore_archive(address, settings.source.expanduser())
    with closing(open_store(address, create=False)) as store:
        print(
            f"{', '.join(list_studies(store))} restored into {store.address}: "
            f"{counted(sum(found.rows.values()), 'row')}, "
            f"{counted(found.rows['judgement'], 'judgement')}"
        )
    return 0
