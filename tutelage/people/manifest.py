"""The manifest of an export: what was exported, from which votes, and the fate of all others."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from tutelage import __version__
from tutelage.people.aggregate import agreements
from tutelage.people.corrected import IN_USE
from tutelage.people.preferences import LabelledStudy
from tutelage.people.selection import FATES, Selection, fate
from tutelage.people.store.consents import Consent, list_agreements, list_consents, shown_text
from tutelage.people.store.engine import Store
from tutelage.people.store.exports import list_versions
from tutelage.people.store.live_models import find_live_models
from tutelage.people.store.raters import list_raters
from tutelage.people.store.studies import Study
from tutelage.people.store.votes import Vote, list_exclusions

FORMAT = "tutelage-export/1"
MANY_TIES = 0.05


def describe(store: Store, study: Study, selection: Selection, labelled: LabelledStudy) -> dict[str, object]:
    """The manifest of an export without its files: what was exported, from which votes, and the fate of all other
    votes."""
    fates = {name: labelled.fates.get(name, 0) for name in FATES}
    excluded = list_exclusions(store, study.id, labelled.snapshot)
    counted = [vote for vote in labelled.votes if fate(vote, selection) == "counts"]
    return {
        "format": FORMAT,
        "tutelage": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(store.clock())),
        "study": {
            "name": study.name,
            "kind": study.kind.name,
            "plan": asdict(study.plan),
            "created": study.created,
            "languages": study.languages,
        },
        "versions": [asdict(presentation) for presentation in list_versions(store, study.id)],
        "snapshot": asdict(labelled.snapshot),
        "selection": asdict(selection),
        "judgements": {"total": len(labelled.votes), **fates},
        "rows": {
            "preferences": len(labelled.rows),
            "by_split": dict(Counter(str(row.question.prompt.split) for row in labelled.rows)),
            "unpaired": sum(len(question.texts) for question in labelled.bad),
            "demonstrations": len(labelled.corrections),
            "corrections": sum(len(each.pairs) for each in labelled.corrections),
            "spans": sum(len(vote.spans) for vote in marking(labelled, selection)),
        },
        "corrections": {
            "total": sum(labelled.correction_fates.values()),
            **labelled.correction_fates,
        },
        "reliability": labelled.labels.accuracy,
        "strength_agreement": labelled.labels.strength_agreement,
        "agreements": {name: alpha.value for name, alpha in agreements(counted).items()},
        "consents": consent_rows(store, study, labelled),
        "excluded": asdict(excluded),
        "notes": list(_notes(fates, selection)),
    }


def consent_rows(store: Store, study: Study, labelled: LabelledStudy) -> list[dict[str, object]]:
    """The texts that raters were asked to agree to, each with its hash, the raters who agreed to it last, and the
    judgements made under it; then those who agreed to none: raters who are no people, and imported votes."""
    agreements = list_agreements(store, study.id, labelled.snapshot.last_event)
    latest = Counter(made[-1][1] for made in agreements.by_rater.values())
    votes = Counter(agreements.text_at(vote.rater, vote.created) for vote in labelled.votes)
    live = find_live_models(store, study.id) is not None
    own = enumerate(list_consents(store, study.id), 1)
    texts = [*([(0, Consent())] if 0 in latest or 0 in votes else []), *own]
    rows: list[dict[str, object]] = [
        {
            "version": number,
            "sha256": hashlib.sha256(shown_text(consent, live=live).encode()).hexdigest(),
            **asdict(consent),
            "text": shown_text(consent, live=live),
            "raters": latest[number],
            "judgements": votes[number],
        }
        for number, consent in texts
    ]
    others = len(list_raters(store, study.id)) - latest.total()
    return [*rows, {"version": None, "raters": others, "judgements": votes[None]}]


def reconciliation(labelled: LabelledStudy, selection: Selection) -> tuple[str, ...]:
    """The numbers of judgements by fate, as one line that adds up, followed by remarks."""
    fates = {name: labelled.fates.get(name, 0) for name in FATES}
    parts = " + ".join(f"{count:,} {name}" for name, count in fates.items() if count)
    counted = Counter(vote.rater_kind for vote in labelled.votes if fate(vote, selection) == "counts")
    mixed = counted["simulated"] and counted["human"]
    simulated = (
        [f"{counted['simulated']} of the judgements that count are by simulated raters."] if mixed else []
    )
    line = f"{len(labelled.votes):,} judgements = {parts or '0'}"
    return line, *_notes(fates, selection), *simulated


def _notes(fates: Mapping[str, int], selection: Selection) -> Iterator[str]:
    decided = fates["used"] + fates["tied"]
    if selection.ties == "drop" and decided and fates["tied"] / decided >= MANY_TIES:
        yield (
            f"{fates['tied'] / decided:.0%} of the votes are on pairs found equal and were dropped; keep ties "
            "and train with the loss davidson to use them."
        )
    if fates["other_kind"]:
        kinds = ", ".join(selection.kinds)
        yield (
            f"{fates['other_kind']} judgements by raters of other kinds than {kinds} are left out (see --kinds)."
        )


def marking(labelled: LabelledStudy, selection: Selection) -> Iterator[Vote]:
    """The votes whose spans are used: those whose corrections would be."""
    return (vote for vote in labelled.votes if vote.spans and fate(vote, selection) in IN_USE)
