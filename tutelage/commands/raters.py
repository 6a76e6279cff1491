"""`tutelage raters`: how reliable the raters of any table of votes are, and how well they agree."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from rich.console import Console

    from tutelage.stats.flags import Flag
    from tutelage.stats.reliability import Reliability
    from tutelage.stats.vote_files import VoteFile
    from tutelage.stats.votes import Floats, Ints


@dataclass(frozen=True)
class Settings:
    """How well the raters of a table of votes agree, how reliable each of them is, and what the truth of each item
    probably is (Dawid and Skene 1979)."""

    votes: tyro.conf.Positional[str]
    """The table, one vote per row: .csv, .tsv, .json, .jsonl or .parquet."""
    item: str = "item"
    """The column that says what was judged."""
    rater: str = "rater"
    """The column that says who judged."""
    choice: str = "choice"
    """The column with the choice: two or more classes, text or numbers."""
    gold: str = ""
    """A column with known answers, where there are any; the labels are measured against them."""
    use_gold: bool = False
    """Learn from the known answers too, instead of only measuring against them."""
    model: Literal["matrix", "coin"] = "matrix"
    """How raters err: a confusion matrix each, or one accuracy each and classes that are equally likely."""
    level: Literal["nominal", "ordinal", "interval"] = "nominal"
    """What alpha takes the choices for: names, an order, or numbers with distances."""
    out: str = ""
    """CSV file for the label of each item, with its posterior probability."""
    raters_out: str = ""
    """CSV file for all raters."""
    show: int = 20
    """Raters to print: the flagged ones first, then those with the most votes."""
    seed: int = 0
    """Seed of the bootstrap behind the interval of the agreement."""


@dataclass(frozen=True, eq=False)
class Findings:
    """All that is printed and written."""

    file: "VoteFile"
    model: "Reliability"
    majority: "Floats"
    flags: tuple[tuple["Flag", ...], ...]


def main(settings: Settings) -> int:
    """Read, fit, print and write; see `Settings`."""
    from rich.console import Console

    from tutelage.stats.flags import rater_flags
    from tutelage.stats.reliability import dawid_skene, majority, one_coin
    from tutelage.stats.vote_files import Columns, read_votes

    file = read_votes(settings.votes, Columns(settings.item, settings.rater, settings.choice, settings.gold))
    fit = dawid_skene if settings.model == "matrix" else one_coin
    model = fit(file.votes, file.gold if settings.use_gold else None)
    found = Findings(file, model, majority(file.votes), rater_flags(file.votes, model))
    console = Console(highlight=False, markup=False, soft_wrap=True)
    _print_votes(console, settings, found)
    _print_raters(console, settings, found)
    _print_gold(console, settings, found)
    _write(console, settings, found)
    return 0


def _print_votes(console: "Console", settings: Settings, found: Findings) -> None:
    from tutelage.stats.agreement import krippendorff_alpha, pair_agreement

    votes = found.file.votes
    console.print(
        f"{len(votes):,} votes on {len(votes.items):,} items by {len(votes.raters):,} raters; "
        f"choices: {', '.join(map(printable, votes.choices))}"
    )
    for note in found.file.notes:
        console.print(f"note: {printable(note)}")
    agreement = pair_agreement(votes, seed=settings.seed)
    if agreement.value is None:
        console.print(f"agreement {agreement.note}; the reliabilities below are assumptions, not findings")
    else:
        console.print(
            f"agreement {agreement.value:.3f}{_interval(agreement.low, agreement.high)}: two raters of an item choose "
            f"the same ({agreement.items:,} items with two or more)"
        )
    alpha = krippendorff_alpha(votes, settings.level, _values(votes.choices))
    console.print(
        f"alpha {alpha.note}" if alpha.value is None else f"alpha {alpha.value:.3f} ({settings.level})"
    )
    if not found.model.converged:
        console.print("note: the rater model has not settled; its figures may still move in the third digit")


def _values(choices: tuple[str, ...]) -> list[float] | None:
    """The choices as numbers, if all are."""
    try:
        return [float(choice) for choice in choices]
    except ValueError:
        return None


def _print_raters(console: "Console", settings: Settings, found: Findings) -> None:
    from rich.table import Table

    votes, model = found.file.votes, found.model
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("rater", overflow="fold")
    repeats = found.file.repeats
    more = [*(["gold"] if settings.gold else []), *(["repeats"] if repeats else [])]
    for column in ("votes", "reliability", "interval", *more):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("flags", overflow="fold")
    counts = votes.per_rater()
    right, asked = _gold_answers(found)
    order = _by_interest(found)
    for r in order[: settings.show]:
        cells = [printable(votes.raters[r]), f"{counts[r]:,}", f"{model.accuracy[r]:.2f}"]
        cells.append(f"{model.low[r]:.2f}-{model.high[r]:.2f}")
        if settings.gold:
            cells.append(f"{right[r]}/{asked[r]}")
        if repeats:
            again = repeats.get(votes.raters[r])
            cells.append(f"{again.same}/{again.seen}" if again else "")
        table.add_row(*cells, printable(_flag_text(found.flags[r])))
    console.print()
    console.print(table)
    if len(order) > settings.show:
        rest = "" if settings.raters_out else "; --raters-out FILE writes all"
        console.print(
            f"({settings.show} of {len(order):,} raters: the flagged first, then the busiest{rest})"
        )
    console.print("reliability: the probability that a choice is right, with its 95 % interval")
    if repeats:
        console.print("repeats: items judged again with the same choice, of all that were judged again")


def _by_interest(found: Findings) -> list[int]:
    """Rater codes: the flagged first (being new is no flag here), then by votes."""
    counts = found.file.votes.per_rater()
    flagged = [any(flag.kind != "too_few" for flag in flags) for flags in found.flags]
    return sorted(range(len(counts)), key=lambda r: (not flagged[r], -counts[r]))


def _flag_text(flags: tuple["Flag", ...]) -> str:
    return "; ".join(f"{flag.kind.replace('_', ' ')}: {flag.evidence}" for flag in flags)


def _gold_answers(found: Findings) -> tuple["Ints", "Ints"]:
    """[R] each: right choices, and choices, on items with a known answer."""
    import numpy as np

    votes = found.file.votes
    answers = np.full(len(votes), -1) if found.file.gold is None else found.file.gold[votes.item]
    raters = len(votes.raters)
    asked = np.bincount(votes.rater[answers >= 0], minlength=raters)
    return np.bincount(votes.rater[answers == votes.choice], minlength=raters), asked


def _print_gold(console: "Console", settings: Settings, found: Findings) -> None:
    """How often the majority and the model give the known answer."""
    import numpy as np

    from tutelage.stats.intervals import wilson

    gold = found.file.gold
    if gold is None:
        return
    known = np.flatnonzero(gold >= 0)
    console.print()
    console.print(f"accuracy on the {len(known):,} items with a known answer, with 95 % interval:")
    measured = {"majority": found.majority[known, gold[known]].sum()}
    if not settings.use_gold:
        measured["model"] = (found.model.posterior.argmax(axis=1) == gold)[known].sum()
    for name, right in measured.items():
        share = wilson(float(right), len(known))
        console.print(f"  {name:<9} {share.value:.3f}{_interval(share.low, share.high)}")
    if settings.use_gold:
        console.print("  (the model learnt from these answers, so they cannot measure it)")


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"


def _write(console: "Console", settings: Settings, found: Findings) -> None:
    from tutelage.stats.vote_files import write_table

    if settings.out:
        write_table(settings.out, *_label_table(found))
        console.print(f"labels of {len(found.file.votes.items):,} items written to {settings.out}")
    if settings.raters_out:
        write_table(settings.raters_out, *_rater_table(found))
        console.print(f"{len(found.file.votes.raters):,} raters written to {settings.raters_out}")


def _label_table(found: Findings) -> tuple[list[str], list[list[object]]]:
    """item, label, its posterior, number of votes, majority (empty for a draw), known answer, P of each class."""
    votes, posterior, gold = found.file.votes, found.model.posterior, found.file.gold
    header = ["item", "label", "posterior", "votes", "majority", *(["gold"] if gold is not None else [])]
    labels, number, leader = (
        posterior.argmax(axis=1),
        votes.counts().sum(axis=1),
        found.majority.argmax(axis=1),
    )
    rows: list[list[object]] = []
    for i, item in enumerate(votes.items):
        majority = votes.choices[leader[i]] if found.majority[i, leader[i]] == 1 else ""
        row = [item, votes.choices[labels[i]], f"{posterior[i, labels[i]]:.6f}", number[i], majority]
        if gold is not None:
            row.append(votes.choices[gold[i]] if gold[i] >= 0 else "")
        rows.append(row + [f"{p:.6f}" for p in posterior[i]])
    return header + [f"p_{choice}" for choice in votes.choices], rows


def _rater_table(found: Findings) -> tuple[list[str], list[list[object]]]:
    """One row per rater, most interesting first."""
    votes, model = found.file.votes, found.model
    header = ["rater", "votes", "reliability", "low", "high", "evidence", "gold_right", "gold_asked"]
    header += ["repeats_same", "repeats", "flags"]
    counts = votes.per_rater()
    right, asked = _gold_answers(found)
    rows: list[list[object]] = []
    for r in _by_interest(found):
        figures = (model.accuracy[r], model.low[r], model.high[r], model.evidence[r])
        rounded = [f"{figure:.4f}" for figure in figures]
        again = found.file.repeats.get(votes.raters[r])
        twice = [again.same, again.seen] if again else [0, 0]
        known = [right[r], asked[r], *twice, _flag_text(found.flags[r])]
        rows.append([votes.raters[r], counts[r], *rounded, *known])
    return header, rows


def printable(text: str) -> str:
    """Text from a file without characters that steer a terminal."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
