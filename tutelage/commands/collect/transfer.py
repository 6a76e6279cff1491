"""`tutelage collect export`, `import`, `backup` and `restore`: a study as files, and files as a study."""

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
    """Output files of an export."""

    out: Path
    """Folder to write; it must not exist."""
    redact: bool = False
    """Replace apparent personal data in texts by people with [email], [phone], [iban], [card], [ip], [name] or
    [address]."""
    names: bool = False
    """Include the names of raters in raters.jsonl. Otherwise, and in all other files, a rater appears under a pseudonym
    such as rater-7, where 7 is the rater's number in the study."""


Export = settings_of(EXPORT, ExportFiles)


@dataclass(frozen=True, kw_only=True)
class Import(CollectSettings):
    """Import data from elsewhere: a folder that `collect export` wrote (as a new study), or a table of votes."""

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """The folder, or a table of votes: csv, tsv, json, jsonl or parquet."""
    prompt: tuple[str, ...] = ("prompt",)
    """Column of the prompt; several are joined by blank lines."""
    a: str = "completion_a"
    """Column of the first response."""
    b: str = "completion_b"
    """Column of the second response."""
    choice_column: str = "preference"
    """Column of the choice: a, b, tie, both_bad, a-is-better, b-is-slightly-better, …"""
    choice: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Meaning of another word for a choice, such as 1=a; once per word."""
    rater: str = "evaluator"
    """Column of the rater."""
    annotators: tuple[str, ...] = ()
    """Columns with the choices of one rater each, named after the column, instead of --choice-column and --rater; an
    empty cell is no vote."""
    model_a: str = ""
    """Column of the model of the first response, if any."""
    model_b: str = ""
    """Column of the model of the second response, if any."""
    time: str = ""
    """Column of the time of the vote, if any."""
    reason: str = ""
    """Column of the rater's reason, if any."""
    partial: bool = False
    """Skip unusable votes; by default nothing is imported if there are any."""

    def __post_init__(self) -> None:
        for each in self.choice:
            if "=" not in each:
                raise TutelageError(
                    f"--choice {each} has no meaning: write --choice {each}=a for a choice, or "
                    f"--choice-column {each} for a column."
                )


@dataclass(frozen=True, kw_only=True)
class Backup(CollectSettings):
    """Write the whole database into one file, which `collect restore` restores into SQLite or PostgreSQL. Raters can
    continue answering meanwhile."""

    out: Path
    """File to write, such as study.backup; it must not exist. It contains all data, including names and hashes of
    links."""


@dataclass(frozen=True, kw_only=True)
class Restore(CollectSettings):
    """Restore the database of a study from a file that `collect backup` wrote. Nothing is changed if the database
    already exists."""

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="BACKUP")]
    """Backup file."""


FEW = 5
"""Maximum number of examples of personal data to print."""


def write(settings: ExportFiles) -> int:
    """Export a study, and print the outcome of every vote."""
    from tutelage.people.export import export_study

    store, study = open_existing(settings)
    selection = EXPORT.settings(**given_values(settings))
    with closing(store):
        export = export_study(
            store, study.id, settings.out, selection,
            redact=settings.redact, names=settings.names, actor=operator(),
        )  # fmt: skip
    manifest = export.manifest
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
    for line in _told(export.hints, redacted=settings.redact):
        print(line)
    return 0


def _told(hints: "Hints", *, redacted: bool) -> Iterator[str]:
    """Yield lines about apparent personal data in the export: amount, examples, and remedy."""
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
    """Import a folder as a new study, or a table of votes into the named study, which is created if absent."""
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
        name = study_name(settings) or json.loads((source / "manifest.json").read_text())["study"]["name"]
        study = import_export(store, source, name=name, actor=operator())
        print(f"{study.name} was restored from {source} into {store.address}")


def _read_table(settings: Import) -> None:
    from tutelage.data.tables import read_table
    from tutelage.people import open_store
    from tutelage.people.vote_import import import_votes

    table, columns = read_table(settings.source), _columns(settings)
    address = database(settings)
    if "://" not in address and not Path(address).exists():
        _check(table, columns, settings)  # an unusable file must not create a database
    with closing(open_store(address)) as store:
        study = _study(store, table, columns, settings)
        imported = import_votes(store, study.id, table, columns, partial=settings.partial, actor=operator())
    print(
        f"{study.name}: {counted(imported.votes, 'new vote')} by {counted(imported.raters, 'new rater')} on "
        f"{counted(imported.items, 'new question')}; "
        f"{imported.revised:,} replaced an earlier one, {imported.known:,} were known already."
    )
    for reason, (count, places) in imported.dropped.items():
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
    """Return the named study, created if absent and the table is usable."""
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
    """Parse WORD=MEANING; a word may contain the equals sign itself."""
    from tutelage.people.vote_tables import meaning_of

    pairs = [each.rpartition("=") for each in choices]
    return {word: meaning_of(meaning) for word, _, meaning in pairs}


def back_up(settings: Backup) -> int:
    """Write the database into a file, and print its contents."""
    from tutelage.people import list_studies, open_store
    from tutelage.people.store.archive import write_archive
    from tutelage.people.store.backup import record_archive

    with closing(open_store(database(settings), create=False)) as store:
        archive = write_archive(store, settings.out.expanduser())
        record_archive(store, settings.out.expanduser(), actor=operator())
        print(
            f"{settings.out}: {', '.join(list_studies(store))} from {store.address}\n"
            f"  {counted(sum(archive.rows.values()), 'row')} in {counted(len(archive.rows), 'table')} of version "
            f"{archive.revision}, {counted(archive.rows['judgement'], 'judgement')}\nIt holds names, answers and "
            "hashes of links: keep it private."
        )
    return 0


def restore(settings: Restore) -> int:
    """Restore the database, and print its contents."""
    from tutelage.people import list_studies, open_store
    from tutelage.people.store.archive import restore_archive

    address = database(settings)
    restored = restore_archive(address, settings.source.expanduser())
    with closing(open_store(address, create=False)) as store:
        print(
            f"{', '.join(list_studies(store))} restored into {store.address}: "
            f"{counted(sum(restored.rows.values()), 'row')}, "
            f"{counted(restored.rows['judgement'], 'judgement')}"
        )
    return 0
