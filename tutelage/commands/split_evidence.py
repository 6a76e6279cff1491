"""Evidence of a split test for the promotion of a run: from a table of responses, or from the study that kept them."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tutelage.base.errors import TutelageError
from tutelage.commands.promote.settings import PromoteSettings
from tutelage.commands.results import MODEL
from tutelage.commands.study import study_address, with_password
from tutelage.commands.study_data import fingerprint
from tutelage.stats.split_test import Requirements, Response, SplitTest, read_responses, split_test, trials_of

MARKS = {True: "met", False: "not met", None: "not checked"}


class NoResponses(TutelageError):
    """A study has no responses of the candidate's split test."""


@dataclass(frozen=True)
class SplitEvidence:
    """The responses, what is required of the candidate, and the result."""

    responses: tuple[Response, ...]
    required: Requirements
    test: SplitTest


def evidence_of(settings: PromoteSettings) -> SplitEvidence:
    """The evidence that the settings of a promotion name; nothing is decided.

    Raises:
        NoResponses: the study has none of this candidate.
        TutelageError: the responses cannot be read.
    """
    assert settings.outcomes is not None, "the settings are of a promotion"
    responses, notes = _responses(settings, settings.outcomes)
    required = Requirements(
        level=settings.level,
        margin=settings.margin,
        split=settings.split,
        tolerance=settings.tolerance,
        slow=settings.slow,
        hours=settings.hours,
    )
    return SplitEvidence(tuple(responses), required, split_test(responses, required, notes))


def condition_lines(test: SplitTest) -> list[str]:
    """The conditions of a promotion in columns: the name, whether it is met, and what was found."""
    rows = [(each.name, MARKS[each.met], each.finding) for each in test.conditions]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [f"{name:{widths[0]}}  {met:{widths[1]}}  {finding}" for name, met, finding in rows]


def _responses(settings: PromoteSettings, outcomes: str) -> tuple[Sequence[Response], tuple[str, ...]]:
    """The responses of a table, or those of a study in which `tutelage serve --against` kept them."""
    address = study_address(outcomes)
    if address is None:
        return read_responses(outcomes)
    from tutelage.people import open_store, open_study
    from tutelage.people.store.completions import list_outcomes, list_trials

    with closing(open_store(with_password(address), create=False)) as store:
        study = open_study(store, settings.study or None)
        candidate, trials = weights_name(str(settings.run / MODEL)), list_trials(store, study.id)
        of_candidate = trials_of(candidate, settings.split, trials)
        if not of_candidate:
            raise NoResponses(
                f"'{study.name}' has no responses of a split test of {candidate} with --split {settings.split:g}. Its "
                f"tests: {'; '.join(trials) or 'none'}. Serve the candidate with `tutelage serve --against "
                f"{settings.run / MODEL} --split {settings.split:g} --feedback STUDY`; other weights, and another "
                "split, are another test."
            )
        rows = list_outcomes(store, study.id, of_candidate[-1])
    earlier = (f"Not counted, because the present model was another one: {name}" for name in of_candidate[:-1])
    return rows, tuple(earlier)


def weights_name(model: str) -> str:
    """A model in a split test: its folder as an absolute path with the fingerprint of the weights, or its name on the
    hub."""
    path = Path(model).expanduser()
    return f"{path.resolve()} ({fingerprint(path)})" if path.is_dir() else model
