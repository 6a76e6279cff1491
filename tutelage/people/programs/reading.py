"""How far a study is, from its database, as the values of the API."""

from typing import TYPE_CHECKING

from tutelage.people.programs.values import AgreementFigures, Overview, RoundProgress
from tutelage.people.store.engine import Store
from tutelage.people.store.overview import survey
from tutelage.people.store.raters import list_raters
from tutelage.people.store.studies import Study

if TYPE_CHECKING:  # the site imports this module, and the statistics lie in the site
    from tutelage.people.statistics.keeping import StudyStatistics


def study_overview(store: Store, study: Study) -> Overview:
    """How far a study is, from the counters alone."""
    found = survey(store, study.id)
    counts = found.counts
    return Overview(
        study=study.name,
        state=study.state,
        kind=study.kind.name,
        version=study.version,
        items=counts.items,
        items_done=counts.complete,
        votes=counts.answered,
        votes_wanted=counts.wanted,
        judgements=counts.judgements,
        skipped=counts.skipped,
        flagged=counts.flagged,
        raters=sum(rater.role == "rater" for rater in list_raters(store, study.id)),
        rounds=tuple(
            RoundProgress(each.number, each.items, each.complete, each.agreement) for each in found.rounds
        ),
    )


def agreement_figures(whole: "StudyStatistics", at: int) -> AgreementFigures:
    """The agreement in the statistics of a study, which were computed `at` a time."""
    found = whole.statistics.agreement
    value, low, high = (
        None if each is None else float(each) for each in (found.value, found.low, found.high)
    )
    alphas = {name: None if a.value is None else float(a.value) for name, a in whole.agreements.items()}
    return AgreementFigures(value, low, high, found.items, found.pairs, found.note, alphas, at)
