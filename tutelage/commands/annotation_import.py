"""`tutelage import`: annotations that a team has in a tracker or a labelling tool, as files of Tutelage."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted

if TYPE_CHECKING:
    from tutelage.commands.annotation_folder import ImportFolder
    from tutelage.data.annotation_files import Export
    from tutelage.data.annotations import Annotation, Ledger

SHOWN = 5
"""Maximum number of places in a line."""
REASONS = 12
"""Maximum number of reasons for what is left out, most frequent first: texts of annotators are as many."""
LONGEST = 200
"""Maximum number of characters of a reason."""


@dataclass(frozen=True, kw_only=True)
class ImportSettings:
    """Import scores, feedback and annotations from exports of Langfuse, LangSmith, Phoenix, Opik, Braintrust, Inspect,
    Argilla, Label Studio and Mechanical Turk, recognised by their columns: votes, ratings and better responses, the
    training data in them, and the responses as questions for a study; submissions of Prolific say whose work counts.
    Importing again adds nothing twice, and takes later edits over."""

    files: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FILE ...")]
    """Files of one export, for example traces and their scores: csv, tsv, json, jsonl, parquet, or eval of Inspect."""
    out: Path
    """Folder to write; one of an earlier import is continued."""
    question: tuple[str, ...] = ()
    """Names of the scores, feedback keys or questions to use: one of choices between two responses, and one of ratings.
    [default: the only ones]"""
    prompt: str = ""
    """Part of the inputs, or field of the records, with the prompt. [default: the only one, or that of a usual name]"""
    responses: tuple[str, ...] = ()
    """Part of the outputs with the response, or fields of the records with one or two responses."""
    corrections: tuple[str, ...] = ()
    """Questions of a labelling tool whose text is a better response."""
    choice: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Meaning of a word for a choice between the first response, a, and the second, such as 1=a; once per word."""
    good: tuple[str, ...] = ()
    """Categories of one response that are good; all others are bad."""
    threshold: float | None = None
    """Number above which a mean rating makes a response good. [default: 0.5 if all ratings are 0 or 1]"""
    models: bool = False
    """Count scores of models, such as judges, like those of people; by default they are left out."""
    names: bool = False
    """Keep the ids of raters; by default they are numbered: rater-1, rater-2, …"""
    redact: bool = False
    """Replace apparent personal data in all texts with [email], [phone], [iban], [card], [ip], [name] or [address]
    before anything is stored."""

    def __post_init__(self) -> None:
        if not self.files:
            raise TutelageError("Name at least one file of an export.")
        if len(self.responses) > 2:
            parts = counted(len(self.responses), "part")
            raise TutelageError(f"--responses names {parts}; give one, or two that were compared.")
        _ = self.meanings

    @property
    def meanings(self) -> dict[str, str]:
        """Words of `vote_rows.CHOICES` by the words for choices."""
        from tutelage.data.vote_rows import CHOICES, MEANINGS

        meanings = {}
        for each in self.choice:
            word, _, meaning = each.rpartition("=")
            if not word or meaning not in CHOICES:
                raise TutelageError(f"--choice {each} is not WORD=MEANING, with one of {', '.join(MEANINGS)}.")
            meanings[word] = meaning
        return meanings


def main(settings: ImportSettings) -> int:
    """Import, and print what became of every statement."""
    from tutelage.commands.annotation_folder import open_folder, write_folder
    from tutelage.data.annotation_files import read_annotations
    from tutelage.data.annotations import Parts, Reading, derive

    folder = open_folder(settings.out, {"names": settings.names, "redact": settings.redact})
    parts = Parts(settings.prompt, settings.responses, settings.corrections)
    export = read_annotations(settings.files, parts, tuple(folder.subjects.values()))
    for file in export.files:
        print(file.describe())
    ledger, merged = export.ledger, dict.fromkeys(("new", "changed", "known", "older"), 0)
    placed: dict[str, tuple[Annotation, str]] = {}
    earlier = set(folder.annotations)
    for annotation, place in _private(export, folder, settings):
        fate = folder.merge(annotation)
        merged[fate] += 1
        if fate == "older":
            ledger.left_out["the folder has a later edit of it"].append(place)
        else:
            earlier.discard(annotation.id)
            if annotation.id in placed:
                ledger.left_out["given again in a later line"].append(placed[annotation.id][1])
            placed[annotation.id] = folder.annotations[annotation.id], place
    folder.set_work(export.work)
    own = (settings.question, settings.meanings, settings.good, settings.threshold, settings.models)
    reading = Reading(*own, folder.rejected)
    before = [(each, "") for key, each in folder.annotations.items() if key in earlier]
    derived = derive([*before, *placed.values()], reading, ledger)
    for fates in (ledger.became, ledger.left_out):
        for name in [name for name, places in fates.items() if not all(places)]:
            fates[name] = [place for place in fates[name] if place]
    if not folder.annotations and not folder.subjects:
        raise TutelageError(f"Nothing in {' '.join(settings.files)} can be used: {'; '.join(_told(export, ledger))}.")
    counts = write_folder(folder, derived, ledger)
    for line in (*_told(export, ledger), *derived.remarks):
        print(f"  {line}")
    print(
        f"{settings.out}: {merged['new']:,} new, {merged['changed']:,} changed, {merged['known']:,} known already; "
        + ", ".join(f"{name}.jsonl {count:,}" for name, count in counts.items() if count and name != "annotations")
    )
    print(_next(settings.out, counts))
    return 0


def _private(export: "Export", folder: "ImportFolder", settings: ImportSettings) -> "Iterator[tuple[Annotation, str]]":
    """The annotations as they are stored: raters numbered and texts redacted, unless the settings say otherwise. Adds
    the responses to the folder."""
    from tutelage.commands.annotation_folder import redacted, redacted_subject
    from tutelage.people.personal_data import PersonalDataSearch

    redact = cache(PersonalDataSearch().redact) if settings.redact else None
    for subject in export.subjects:
        folder.subjects[subject.id] = redacted_subject(subject, redact) if redact else subject
    for annotation, place in export.annotations:
        if redact:
            annotation = redacted(annotation, redact, {*settings.meanings, *settings.good})
        yield (annotation if settings.names else folder.private(annotation)), place


def _told(export: "Export", ledger: "Ledger") -> Iterator[str]:
    """Lines about what became of every statement, and about rows without a prompt or a response."""
    became = [f"{counted(len(places), name)}" for name, places in ledger.became.items() if places]
    left_out = {reason: places for reason, places in ledger.left_out.items() if places}
    count = sum(map(len, left_out.values()))
    if count:
        became.append(f"{count:,} left out")
    yield f"{counted(ledger.read, 'annotation')} read: {', '.join(became) or 'nothing'}"
    if ledger.members:
        yield f"{counted(ledger.members, 'score')} of compared responses: {counted(ledger.compared, 'choice')}"
    reasons = sorted(left_out.items(), key=lambda each: -len(each[1]))
    for reason, places in reasons[:REASONS]:
        excerpt = reason if len(reason) <= LONGEST else f"{reason[:LONGEST]}…"
        yield f"left out {len(places):,}: {excerpt} ({_some(places)})"
    if others := [place for _, places in reasons[REASONS:] for place in places]:
        yield f"left out {len(others):,}: {counted(len(reasons) - REASONS, 'other reason')} ({_some(others)})"
    if export.without:
        yield f"{counted(len(export.without), 'row')} without a prompt or a response ({_some(list(export.without))})"


def _some(places: list[str]) -> str:
    return ", ".join(places[:SHOWN]) + (", …" if len(places) > SHOWN else "")


def _next(out: Path, counts: dict[str, int]) -> str:
    """The command for which the import is made: the study of its votes, or of its questions, or a training."""
    folder = shlex.quote(str(out))
    if counts["votes"]:
        return f"Next: tutelage collect import STUDY {folder}/votes.jsonl"
    if counts["comparisons"]:
        return f"Next: tutelage collect init STUDY --from-sample {folder}"
    return f"Next: tutelage sft --model MODEL --data {folder}/unpaired.jsonl --out RUN" if counts["unpaired"] else ""
