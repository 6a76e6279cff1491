"""Statistics of a table of votes: agreement, reliability of each rater, and probable truth of each item."""

from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.commands.calls import workflow
from tutelage.commands.raters.settings import RatersSettings
from tutelage.stats.agreement import Alpha, PairAgreement, krippendorff_alpha, pair_agreement
from tutelage.stats.calibration import Calibration, calibration, label_hits
from tutelage.stats.model_choice import Choice, choose_model, fit_model
from tutelage.stats.rater_checks import RaterFlag, rater_flags
from tutelage.stats.reliability import Reliability, majority
from tutelage.stats.vote_codes import Floats, Ints, numbers_of
from tutelage.stats.vote_files import VoteFile, VoteFileColumns, read_votes, write_table


@dataclass(frozen=True, eq=False)
class RatersResult:
    """Statistics of a table of votes on I items by R raters."""

    file: VoteFile
    """Votes, known answers and repeated votes of the table."""
    model: Reliability
    """Reliability of each rater and posterior of each item."""
    model_name: str
    """The rater model, as in `RatersSettings.model`."""
    choice: Choice | None
    """Reason for the choice of the model, with `auto`."""
    majority: Floats
    """[I, classes]: 1 for the class with most votes, equal shares for ties."""
    learnt_gold: bool
    """Whether the model was fitted to the known answers."""
    flags: tuple[tuple[RaterFlag, ...], ...]
    """Anomalies of each rater."""
    agreement: PairAgreement
    """Probability that two raters of an item choose the same class."""
    alpha: Alpha
    """Krippendorff's alpha."""

    def label_calibration(self) -> Calibration | None:
        """Return the calibration of class probabilities on items with a known answer that the model was not fitted to;
        None if there are none."""
        gold = self.file.gold
        if gold is None or self.learnt_gold or not (gold >= 0).any():
            return None
        gold_items = np.flatnonzero(gold >= 0)
        right = (gold[gold_items, None] == np.arange(self.model.posterior.shape[1])).astype(float)
        return calibration(self.model.posterior[gold_items].ravel(), right.ravel())

    def confidence(self) -> tuple[float, float]:
        """Return the mean probability of the labels of items with a known answer, and the share that is right."""
        gold = np.full(len(self.model.posterior), -1) if self.file.gold is None else self.file.gold
        posterior = self.model.posterior[gold >= 0]
        return float(posterior.max(axis=1).mean()), float(label_hits(posterior, gold[gold >= 0]).mean())

    def calibration(self) -> Calibration:
        """Return the calibration of the labels if answers are known, else of the predictions of held-out votes.

        Raises:
            TutelageError: neither is available.
        """
        result = self.label_calibration() or (self.choice.calibration if self.choice else None)
        if result is None:
            raise TutelageError(
                "Calibration needs known answers that the model is not fitted to (--gold), or --model auto, which "
                "holds votes out."
            )
        return result

    def gold_accuracy(self) -> dict[str, float]:
        """Return the accuracy of each candidate's labels on items with a known answer; empty without `choice`, or if
        the model was fitted to the answers."""
        return {name: float(hits.mean()) for name, hits in self._gold_hits().items()}

    def gold_preference(self) -> tuple[str, float, float] | None:
        """Return the candidate of the best accuracy on items with a known answer, the chosen model if it is among the
        best; by how much it is ahead of the chosen model; and half the width of the 95 % interval over items. None
        without `gold_accuracy`."""
        hits = self._gold_hits()
        if not hits:
            return None
        name = max(hits, key=lambda name: (hits[name].mean(), name == self.model_name))
        ahead = hits[name] - hits[self.model_name]
        return name, float(ahead.mean()), 1.96 * float(ahead.std()) / len(ahead) ** 0.5

    def _gold_hits(self) -> dict[str, Floats]:
        gold = self.file.gold
        if gold is None or self.learnt_gold or self.choice is None or not (gold >= 0).any():
            return {}
        has_gold = gold >= 0
        return {name: label_hits(fit.posterior[has_gold], gold[has_gold]) for name, fit in self.choice.fits.items()}

    def gold_answers(self) -> tuple[Ints, Ints]:
        """Return [R] each: numbers of right choices and of choices, on items with a known answer."""
        votes = self.file.votes
        answers = np.full(len(votes), -1) if self.file.gold is None else self.file.gold[votes.item]
        raters = len(votes.raters)
        totals = np.bincount(votes.rater[answers >= 0], minlength=raters)
        return np.bincount(votes.rater[answers == votes.choice], minlength=raters), totals

    def by_interest(self) -> list[int]:
        """Return rater codes: flagged raters first (being new does not count as a flag), then by votes."""
        counts = self.file.votes.per_rater()
        flagged = [any(flag.kind != "too_few" for flag in flags) for flags in self.flags]
        return sorted(range(len(counts)), key=lambda r: (not flagged[r], -counts[r]))


@workflow(RatersSettings)
def raters(settings: RatersSettings) -> RatersResult:
    """Measure the agreement of the raters of a table of votes and the reliability of each.

    Writes the label of each item to `settings.out` and the raters to `settings.raters_out`, if set.

    Raises:
        TutelageError: the table cannot be read, or has too few choices.
    """
    order = tuple(name.strip() for name in settings.order.split(",")) if settings.order else ()
    columns = (settings.item, settings.rater, settings.choice, settings.gold, settings.strength, order)
    file = read_votes(settings.votes, VoteFileColumns(*columns), keep_rejected=settings.keep_rejected)
    votes, gold = file.votes, file.gold if settings.use_gold else None
    if len(votes.choices) < 2:
        raise TutelageError(
            f"All votes in {settings.votes} are '{votes.choices[0]}'; reliability needs at least two different "
            f"choices. {' '.join(f'Note: {note}.' for note in file.notes)}".rstrip()
        )
    ordered = _ordered(settings, file)
    choice = choose_model(votes, gold, ordered=ordered, seed=settings.seed) if settings.model == "auto" else None
    name = choice.name if choice else settings.model
    model = choice.fits[name] if choice else fit_model(name, votes, gold)
    result = RatersResult(
        file,
        model,
        name,
        choice,
        majority(votes),
        gold is not None,
        rater_flags(votes, model),
        pair_agreement(votes, seed=settings.seed),
        krippendorff_alpha(votes, settings.level, numbers_of(votes.choices)),
    )
    if settings.out:
        write_table(settings.out, *_label_table(result))
    if settings.raters_out:
        write_table(settings.raters_out, *_rater_table(result))
    return result


def _ordered(settings: RatersSettings, file: VoteFile) -> bool:
    """Whether the choices are in a known order. Raises TutelageError if the settings need one that is unknown."""
    ordered = file.ordered or (settings.level != "nominal" and numbers_of(file.votes.choices) is not None)
    needs = [
        *(["--level ordinal"] if settings.level == "ordinal" else []),
        *(["--model ordinal"] if settings.model == "ordinal" else []),
    ]
    if needs and not ordered and len(file.votes.choices) > 2:
        raise TutelageError(
            f"{needs[0]} needs the order of the choices {', '.join(file.votes.choices)}. Name all of them in their "
            "order with --order, separated by commas."
        )
    return ordered


def flag_text(flags: tuple[RaterFlag, ...]) -> str:
    """Format the flags of a rater with their evidence on one line."""
    return "; ".join(f"{flag.kind.replace('_', ' ')}: {flag.evidence}" for flag in flags)


def _label_table(result: RatersResult) -> tuple[list[str], list[list[object]]]:
    """Return the label table: item, label, posterior, number of votes, majority (empty for ties), known answer, P of
    each class."""
    votes, posterior, gold = result.file.votes, result.model.posterior, result.file.gold
    header = ["item", "label", "posterior", "votes", "majority", *(["gold"] if gold is not None else [])]
    labels, number, leader = (posterior.argmax(axis=1), votes.counts().sum(axis=1), result.majority.argmax(axis=1))
    rows: list[list[object]] = []
    for i, item in enumerate(votes.items):
        majority = votes.choices[leader[i]] if result.majority[i, leader[i]] == 1 else ""
        row = [item, votes.choices[labels[i]], f"{posterior[i, labels[i]]:.6f}", number[i], majority]
        if gold is not None:
            row.append(votes.choices[gold[i]] if gold[i] >= 0 else "")
        rows.append(row + [f"{p:.6f}" for p in posterior[i]])
    return header + [f"p_{choice}" for choice in votes.choices], rows


def _rater_table(result: RatersResult) -> tuple[list[str], list[list[object]]]:
    """Return the rater table: one row per rater, most interesting first."""
    votes, model = result.file.votes, result.model
    header = ["rater", "votes", "reliability", "low", "high", "evidence", "gold_right", "gold_asked"]
    header += ["repeats_same", "repeats", "flags"]
    counts = votes.per_rater()
    right, totals = result.gold_answers()
    rows: list[list[object]] = []
    for r in result.by_interest():
        figures = (model.accuracy[r], model.low[r], model.high[r], model.evidence[r])
        rounded = [f"{figure:.4f}" for figure in figures]
        again = result.file.repeats.get(votes.raters[r])
        twice = [again.same, again.seen] if again else [0, 0]
        remaining = [right[r], totals[r], *twice, flag_text(result.flags[r])]
        rows.append([votes.raters[r], counts[r], *rounded, *remaining])
    return header, rows
