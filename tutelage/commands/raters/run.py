"""Statistics of a table of votes: agreement, the reliability of each rater, and the probable truth of each item."""

from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.commands.calls import workflow
from tutelage.commands.raters.settings import RatersSettings
from tutelage.stats.agreement import Alpha, PairAgreement, krippendorff_alpha, pair_agreement
from tutelage.stats.calibration import Calibration, calibration
from tutelage.stats.model_choice import Choice, choose_model, fit_model
from tutelage.stats.rater_checks import RaterFlag, rater_flags
from tutelage.stats.reliability import Reliability, majority
from tutelage.stats.vote_codes import Floats, Ints
from tutelage.stats.vote_files import VoteFile, VoteFileColumns, read_votes, write_table


@dataclass(frozen=True, eq=False)
class RatersResult:
    """Statistics of a table of votes on I items by R raters."""

    file: VoteFile
    """The votes, and the known answers and repeated votes in the table."""
    model: Reliability
    """Reliability of each rater and posterior of each item."""
    model_name: str
    """The rater model, as in `RatersSettings.model`."""
    choice: Choice | None
    """Why it was chosen, with `auto`."""
    majority: Floats
    """[I, classes]: 1 for the class with most votes, equal shares for a draw."""
    learnt_gold: bool
    """Whether the known answers were given to the model."""
    flags: tuple[tuple[RaterFlag, ...], ...]
    """What is odd about each rater."""
    agreement: PairAgreement
    """Probability that two raters of an item choose the same class."""
    alpha: Alpha
    """Krippendorff's alpha."""

    def label_calibration(self) -> Calibration | None:
        """How often the probabilities of classes came true, on items with a known answer from which the model did not
        learn; None without any."""
        gold = self.file.gold
        if gold is None or self.learnt_gold or not (gold >= 0).any():
            return None
        known = np.flatnonzero(gold >= 0)
        right = (gold[known, None] == np.arange(self.model.posterior.shape[1])).astype(float)
        return calibration(self.model.posterior[known].ravel(), right.ravel())

    def calibration(self) -> Calibration:
        """That of the labels where answers are known, else that of the predictions of held-out votes.

        Raises:
            TutelageError: there is neither.
        """
        found = self.label_calibration() or (self.choice.calibration if self.choice else None)
        if found is None:
            raise TutelageError(
                "Calibration needs known answers from which the model does not learn (--gold), or --model auto, which "
                "holds votes out."
            )
        return found

    def gold_answers(self) -> tuple[Ints, Ints]:
        """[R] each: right choices, and choices, on items with a known answer."""
        votes = self.file.votes
        answers = np.full(len(votes), -1) if self.file.gold is None else self.file.gold[votes.item]
        raters = len(votes.raters)
        asked = np.bincount(votes.rater[answers >= 0], minlength=raters)
        return np.bincount(votes.rater[answers == votes.choice], minlength=raters), asked

    def by_interest(self) -> list[int]:
        """Rater codes: the flagged first (being new is no flag here), then by votes."""
        counts = self.file.votes.per_rater()
        flagged = [any(flag.kind != "too_few" for flag in flags) for flags in self.flags]
        return sorted(range(len(counts)), key=lambda r: (not flagged[r], -counts[r]))


@workflow(RatersSettings)
def raters(settings: RatersSettings) -> RatersResult:
    """Measure how well the raters of a table of votes agree and how reliable each of them is.

    Writes the label of each item to `settings.out` and the raters to `settings.raters_out`, where these are given.

    Raises:
        TutelageError: the table cannot be read, or has too few choices.
    """
    file = read_votes(
        settings.votes, VoteFileColumns(settings.item, settings.rater, settings.choice, settings.gold)
    )
    votes, gold = file.votes, file.gold if settings.use_gold else None
    choice = choose_model(votes, gold, seed=settings.seed) if settings.model == "auto" else None
    name = choice.name if choice else settings.model
    model = fit_model(name, votes, gold, choice.links if choice else ())
    result = RatersResult(
        file,
        model,
        name,
        choice,
        majority(votes),
        gold is not None,
        rater_flags(votes, model),
        pair_agreement(votes, seed=settings.seed),
        krippendorff_alpha(votes, settings.level, _numbers(votes.choices)),
    )
    if settings.out:
        write_table(settings.out, *_label_table(result))
    if settings.raters_out:
        write_table(settings.raters_out, *_rater_table(result))
    return result


def flag_text(flags: tuple[RaterFlag, ...]) -> str:
    """The flags of a rater with their evidence, in one line."""
    return "; ".join(f"{flag.kind.replace('_', ' ')}: {flag.evidence}" for flag in flags)


def _numbers(choices: tuple[str, ...]) -> list[float] | None:
    """The choices as numbers, if all are."""
    try:
        return [float(choice) for choice in choices]
    except ValueError:
        return None


def _label_table(result: RatersResult) -> tuple[list[str], list[list[object]]]:
    """item, label, its posterior, number of votes, majority (empty for a draw), known answer, P of each class."""
    votes, posterior, gold = result.file.votes, result.model.posterior, result.file.gold
    header = ["item", "label", "posterior", "votes", "majority", *(["gold"] if gold is not None else [])]
    labels, number, leader = (
        posterior.argmax(axis=1),
        votes.counts().sum(axis=1),
        result.majority.argmax(axis=1),
    )
    rows: list[list[object]] = []
    for i, item in enumerate(votes.items):
        majority = votes.choices[leader[i]] if result.majority[i, leader[i]] == 1 else ""
        row = [item, votes.choices[labels[i]], f"{posterior[i, labels[i]]:.6f}", number[i], majority]
        if gold is not None:
            row.append(votes.choices[gold[i]] if gold[i] >= 0 else "")
        rows.append(row + [f"{p:.6f}" for p in posterior[i]])
    return header + [f"p_{choice}" for choice in votes.choices], rows


def _rater_table(result: RatersResult) -> tuple[list[str], list[list[object]]]:
    """One row per rater, most interesting first."""
    votes, model = result.file.votes, result.model
    header = ["rater", "votes", "reliability", "low", "high", "evidence", "gold_right", "gold_asked"]
    header += ["repeats_same", "repeats", "flags"]
    counts = votes.per_rater()
    right, asked = result.gold_answers()
    rows: list[list[object]] = []
    for r in result.by_interest():
        figures = (model.accuracy[r], model.low[r], model.high[r], model.evidence[r])
        rounded = [f"{figure:.4f}" for figure in figures]
        again = result.file.repeats.get(votes.raters[r])
        twice = [again.same, again.seen] if again else [0, 0]
        known = [right[r], asked[r], *twice, flag_text(result.flags[r])]
        rows.append([votes.raters[r], counts[r], *rounded, *known])
    return header, rows
