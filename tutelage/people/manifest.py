"""The manifest of an export: its contents, and the fate of every vote."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from tutelage.base import nouns
from tutelage.base.version import __version__
from tutelage.people.aggregation import agreements
from tutelage.people.correction_data import IN_USE
from tutelage.people.languages import LANGUAGES, Sentence, Share, counted
from tutelage.people.selection import FATES, Selection, fate
from tutelage.people.settings import Consent
from tutelage.people.store.consents import Agreement, kept_texts, list_agreements, list_consents, shown_text, text_hash
from tutelage.people.store.conversations import find_live_models
from tutelage.people.store.engine import Store
from tutelage.people.store.raters import list_raters
from tutelage.people.store.studies import Study, list_versions
from tutelage.people.store.votes import Vote, list_exclusions
from tutelage.people.training_data import LabelledStudy

FORMAT = "tutelage-export/2"
MANY_TIES = 0.05


def describe(store: Store, study: Study, selection: Selection, labelled: LabelledStudy) -> dict[str, object]:
    """The manifest of an export, without its files. `left_out` counts simulated raters omitted from the files and their
    judgements, which `judgements` includes."""
    fates = {name: labelled.fates.get(name, 0) for name in FATES}
    raters = list_raters(store, study.id)
    unlisted = {rater.name for rater in raters if not selection.lists(rater.kind)}
    left_out = {str(vote.id) for vote in labelled.votes if vote.rater in unlisted}
    excluded = asdict(list_exclusions(store, study.id, labelled.snapshot))
    for scope, names in (("rater", unlisted), ("judgement", left_out)):
        excluded[scope] = {name: reason for name, reason in excluded[scope].items() if name not in names}
    why = excluded["rater"]
    excluded["rater"] = {rater.pseudonym: why[rater.name] for rater in raters if rater.name in why}
    accuracy = labelled.labels.accuracy
    reliability = {vote.pseudonym: accuracy[vote.rater] for vote in labelled.votes if vote.rater in accuracy}
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
        "left_out": {"raters": len(unlisted), "judgements": len(left_out)},
        "rows": {
            "preferences": len(labelled.rows),
            "by_split": dict(Counter(str(row.question.prompt.split) for row in labelled.rows)),
            "unpaired": sum(len(question.texts) for question in labelled.bad) + len(labelled.rated),
            "demonstrations": len(labelled.corrections),
            "corrections": sum(len(each.pairs) for each in labelled.corrections),
            "spans": sum(len(vote.spans) for vote in marking(labelled, selection)),
        },
        "corrections": {"total": sum(labelled.correction_fates.values()), **labelled.correction_fates},
        "reliability": reliability,
        "strength_agreement": labelled.labels.strength_agreement,
        "agreements": {name: alpha.value for name, alpha in agreements(counted).items()},
        "consents": consent_rows(store, study, labelled, selection),
        "excluded": excluded,
        "notes": [*_notes(fates, selection), *_unlisted(len(unlisted), len(left_out))],
    }


def consent_rows(store: Store, study: Study, labelled: LabelledStudy, selection: Selection) -> list[dict[str, object]]:
    """The consent texts as displayed, each with its hash, the number of raters whose latest consent it is (also by
    language) and of judgements under it; finally those without consent. Displays of the standard text in an unrecorded
    language count as English."""
    agreements = list_agreements(store, study.id, labelled.snapshot.last_event)
    live = find_live_models(store, study.id) is not None
    consents = {0: Consent(), **dict(enumerate(list_consents(store, study.id), 1))}
    usual = {number: shown_text(consent, live=live) for number, consent in consents.items()}
    texts = kept_texts(store, study.id)

    def displayed(consent: Agreement) -> tuple[int, str]:
        return consent.number, texts.get(consent.sha256) or usual[consent.number]

    raters = [rater.name for rater in list_raters(store, study.id) if selection.lists(rater.kind)]
    latest = [history[-1] for name, history in agreements.by_rater.items() if name in raters]
    agreed = Counter(map(displayed, latest))
    languages = Counter((*displayed(consent), consent.language) for consent in latest if consent.language)
    listed = [vote for vote in labelled.votes if selection.lists(vote.rater_kind)]
    in_force = [agreements.at(vote.rater, vote.created) for vote in listed]
    votes = Counter(displayed(consent) for consent in in_force if consent is not None)
    used = {*agreed, *votes}
    versions = used | {(number, usual[number]) for number in consents if number and number not in dict(used)}
    order = {(number, text): list(LANGUAGES).index(code) for number, text, code in reversed(list(languages))}
    rows: list[dict[str, object]] = [
        {
            "version": number,
            "sha256": text_hash(text),
            **asdict(consents[number]),
            "text": text,
            "languages": {code: languages[number, text, code] for code in LANGUAGES if languages[number, text, code]},
            "raters": agreed[number, text],
            "judgements": votes[number, text],
        }
        for number, text in sorted(versions, key=lambda each: (each[0], order.get(each, len(LANGUAGES)), each[1]))
    ]
    return [*rows, {"version": None, "raters": len(raters) - len(latest), "judgements": in_force.count(None)}]


def reconciliation(labelled: LabelledStudy, selection: Selection) -> tuple[str, ...]:
    """The number of judgements as a sum over their fates, followed by notes."""
    fates = {name: labelled.fates.get(name, 0) for name in FATES}
    parts = " + ".join(f"{count:,} {name}" for name, count in fates.items() if count)
    counted = Counter(vote.rater_kind for vote in labelled.votes if fate(vote, selection) == "counts")
    mixed = counted["simulated"] and counted["human"]
    simulated = [f"{counted['simulated']} of the counted judgements are by simulated raters."] if mixed else []
    line = f"{nouns.counted(len(labelled.votes), 'judgement')} = {parts or '0'}"
    return line, *_notes(fates, selection), *simulated


def _notes(fates: Mapping[str, int], selection: Selection) -> Iterator[str]:
    decided = fates["used"] + fates["tied"]
    if selection.ties == "drop" and decided and fates["tied"] / decided >= MANY_TIES:
        yield Sentence(
            "%(share)s of the votes are on pairs found equal and were dropped; keep ties and train with the loss "
            "davidson to use them.",
            share=Share(fates["tied"] / decided),
        )
    if fates["other_kind"]:
        kinds = ", ".join(selection.kinds)
        yield counted(
            "%(count)s judgement by a rater of another kind than %(kinds)s is left out (see --kinds).",
            "%(count)s judgements by raters of other kinds than %(kinds)s are left out (see --kinds).",
            count=fates["other_kind"],
            kinds=kinds,
        )


def _unlisted(raters: int, judgements: int) -> Iterator[str]:
    if raters:
        yield counted(
            "The files do not list %(raters)s simulated raters; %(count)s judgement of theirs is left out.",
            "The files do not list %(raters)s simulated raters; %(count)s judgements of theirs are left out.",
            count=judgements,
            raters=raters,
        )


def marking(labelled: LabelledStudy, selection: Selection) -> Iterator[Vote]:
    """The votes whose spans are used, by the same rule as for corrections."""
    return (vote for vote in labelled.votes if vote.spans and fate(vote, selection) in IN_USE)
