"""Evidence of a split test for the promotion of a run: from a table of responses, or from the study that kept them."""

from contextlib import closing
from dataclasses import dataclass

from tutelage.base.errors import TutelageError
from tutelage.commands.promote.settings import PromoteSettings
from tutelage.commands.results import MODEL
from tutelage.commands.study import study_address, with_password
from tutelage.stats.split_test import Requirements, Response, SplitTest, read_responses, split_test, trial_of

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


def _responses(settings: PromoteSettings, outcomes: str) -> tuple[list[Response], tuple[str, ...]]:
    """The responses of a table, or those of a study in which `tutelage serve --against` kept them."""
    address = study_address(outcomes)
    if address is None:
        return read_responses(outcomes)
    from tutelage.people import open_store, open_study
    from tutelage.people.store.completions import list_outcomes, list_trials

    with closing(open_store(with_password(address), create=False)) as store:
        study = open_study(store, settings.study or None)
        trial = trial_of(str(settings.run / MODEL))
        served = list_outcomes(store, study.id, trial)
        if not served:
            known = ", ".join(list_trials(store, study.id)) or "none"
            raise NoResponses(
                f"'{study.name}' has no responses of a split test of {trial}: it has tests of {known}. Serve the "
                f"candidate with `tutelage serve --against {settings.run / MODEL} --feedback STUDY`."
            )
    rows = [Response(row.arm, row.user, row.outcome, row.failed, row.seconds, row.time) for row in served]
    return rows, ()
