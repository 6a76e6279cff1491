"""Files of exports of trackers and labelling tools as annotations.

Scores and feedback are joined with what they are about by ids, so that both may be in files of their own.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tutelage.data.annotation_formats import annotation_formats
from tutelage.data.annotations import Account, Annotation, Exported, Parts, Placed, Subject, join
from tutelage.data.evaluation_exports import export_table
from tutelage.data.formats import LoadedRecords, load_table


@dataclass(frozen=True)
class Export:
    """The annotations in files of one export, with their places. `subjects` are all responses, annotated or not;
    `files` say how each file was read, `without` which rows have no prompt or no response; `account` counts the
    statements. `work` has the status of the work of raters, by their names: empty if it counts."""

    annotations: tuple[tuple[Annotation, str], ...]
    subjects: tuple[Subject, ...]
    files: tuple[LoadedRecords[Exported], ...]
    without: tuple[str, ...]
    account: Account
    work: Mapping[str, str]


def read_annotations(sources: Sequence[str], parts: Parts, stored: Sequence[Subject] = ()) -> Export:
    """Read the files of an export; `stored` are the responses of earlier imports, which statements may be about.

    Raises:
        TutelageError: a file cannot be read, is no export, or more than a tenth of its lines are damaged.
    """
    files = tuple(load_table(export_table(each), "annotations", annotation_formats(parts)) for each in sources)
    account = Account()
    subjects: list[Subject] = []
    statements: list[Placed] = []
    without: list[str] = []
    work: dict[str, str] = {}
    for file in files:
        before = f"{file.source} " if len(files) > 1 else ""
        for row, where in zip(file.records, file.places, strict=True):
            place = f"{before}{where}"
            subjects += row.subjects
            statements += [(statement, place) for statement in row.statements]
            if row.work is not None:
                rater, status = row.work
                work[rater] = status and work.get(rater, status)  # a submission that counts, among several
            for reason in row.left_out:
                account.left_out[reason].append(place)
            if row.without:
                without.append(f"{place}: {row.without}")
    subjects = _with_single_roots([*stored, *subjects])
    return Export(tuple(join(subjects, statements, account)), tuple(subjects), files, tuple(without), account, work)


def _with_single_roots(subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects, where one that stands for a larger whole has its own id, if others claim the same or the whole is
    among them."""
    claims: dict[str, set[str]] = defaultdict(set)
    for subject in subjects:
        claims[subject.id].add(subject.alias)
    return [
        replace(each, id=each.alias, alias="") if each.alias and len(claims[each.id]) > 1 else each for each in subjects
    ]
