"""`tutelage collect export`, `import`, `backup` and `restore`: a study as files, and files as a study."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collect.subcommands import given_values, settings_of
from tutelage.commands.study import CollectSettings, database, new_name, open_existing, operator, study_name
from tutelage.people.operations import EXPORT, IMPORT

if TYPE_CHECKING:
    from tutelage.data.tables import Table
    from tutelage.people import Store, Study
    from tutelage.people.redaction import Hints
    from tutelage.people.vote_mapping import ImportPreview, ImportReport, VoteMapping


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
    tools: tuple[Literal["openai", "langfuse", "langsmith", "prm800k", "math_shepherd"], ...] = ()
    """Also write what raters said as other tools take it: openai.jsonl for fine-tuning by OpenAI, langfuse.jsonl as
    scores and langsmith.jsonl as feedback on responses that came from there (tutelage import); labels of steps as
    prm800k.jsonl and math_shepherd.jsonl."""


Export = settings_of(EXPORT, ExportFiles)


@dataclass(frozen=True, kw_only=True)
class ImportSource(CollectSettings):
    """Source of an import."""

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """A table of votes (csv, tsv, json, jsonl or parquet), or a folder that `collect export` wrote, which becomes a new
    study."""
    preview: bool = False
    """Print what would be imported from a table, and import nothing. The study must exist."""


Import = settings_of(IMPORT, ImportSource, "A folder that `collect export` wrote becomes a new study.")


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
            redact=settings.redact, names=settings.names, tools=settings.tools, actor=operator(),
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
    for tool in settings.tools:
        print(f"{tool}.jsonl: {counted(manifest['files'][f'{tool}.jsonl']['rows'], 'row')}")
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


def read(settings: ImportSource) -> int:
    """Import a folder as a new study, or a table of votes into the named study, which is created if absent."""
    source = Path(settings.source).expanduser()
    if not source.is_dir():
        _read_table(settings)
    elif flags := [f"--{name.replace('_', '-')}" for name in given_values(settings)]:
        raise TutelageError(f"{source} is a folder; {', '.join(flags)} is about a table of votes.")
    else:
        _restore(settings, source)
    return 0


def _restore(settings: ImportSource, source: Path) -> None:
    from tutelage.people import open_store
    from tutelage.people.restoration import import_export

    with closing(open_store(database(settings))) as store:
        name = study_name(settings) or json.loads((source / "manifest.json").read_text())["study"]["name"]
        study = import_export(store, source, name=name, actor=operator())
        print(f"{study.name} was restored from {source} into {store.address}")


def _read_table(settings: ImportSource) -> None:
    from tutelage.data.tables import read_table
    from tutelage.people import open_store

    table = read_table(settings.source)
    mapping = IMPORT.settings_for(table, given_values(settings))
    print(f"columns: {', '.join(f'{field}={column}' for column, field in mapping.columns.items())}")
    if settings.preview:
        store, study = open_existing(settings)
        with closing(store):
            _print_preview(IMPORT.look(store, study.id, table, mapping))
        return
    address = database(settings)
    if "://" not in address and not Path(address).exists():
        _check(table, mapping)  # an unusable file must not create a database
    with closing(open_store(address)) as store:
        study = _study(store, table, mapping, settings)
        report = IMPORT.run(store, study.id, table, mapping, operator())
    print(
        f"{study.name}: {counted(report.votes, 'new vote')} by {counted(report.raters, 'new rater')} on "
        f"{counted(report.items, 'new question')}; "
        f"{report.revised:,} replaced an earlier one, {report.known:,} were known already."
    )
    _print_remarks(report)


def _print_preview(preview: "ImportPreview") -> None:
    print(
        f"{counted(preview.votes, 'vote')} by {counted(preview.raters, 'rater')} ({preview.new_raters:,} of them new) "
        f"on {counted(preview.items, 'question')}; nothing was imported."
    )
    for each in preview.choices:
        print(f"  choice {each.word}: {counted(each.count, 'vote')}, {each.means or 'unknown'}")
    if preview.more_choices:
        print(f"  {counted(preview.more_choices, 'other choice')}")
    _print_remarks(preview)


def _print_remarks(result: "ImportReport | ImportPreview") -> None:
    """Print what is not imported, and remarks."""
    for each in result.dropped:
        places = ", ".join(each.places) + (", …" if each.count > len(each.places) else "")
        print(f"  left out {each.count:,}: {each.reason} ({places})")
    for remark in result.remarks:
        print(f"  {remark}")


def _study(store: "Store", table: "Table", mapping: "VoteMapping", settings: ImportSource) -> "Study":
    """Return the named study, created if absent and the table is usable."""
    from tutelage.people import create_study, list_studies, open_study

    name = new_name(settings)
    if name in list_studies(store):
        return open_study(store, name)
    _check(table, mapping)
    return create_study(store, name, actor=operator())


def _check(table: "Table", mapping: "VoteMapping") -> None:
    from tutelage.people import Presentation
    from tutelage.people.kinds import DEFAULT
    from tutelage.people.kinds.kind import Screen
    from tutelage.people.vote_import import usable_votes

    usable_votes(table, mapping, DEFAULT, Screen(2, Presentation().scale))


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
