"""`tutelage collect status` and `payments`: state of a study on the terminal, and the table for paying raters."""

from contextlib import closing
from typing import TYPE_CHECKING

from tutelage.base.config.files import create_private
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collect.server import describe
from tutelage.commands.collect.settings import Payments, Status
from tutelage.commands.study import open_existing

LISTED = 40
"""Raters with a line of their own, those with the most answers; users of a served model may be thousands."""

if TYPE_CHECKING:
    from rich.console import Console

    from tutelage.people import Rater, Round
    from tutelage.people.statistics.cache import StudyStatistics
    from tutelage.stats.agreement import PairAgreement


def tell(settings: Status) -> int:
    """Print the statistics of the owner's page."""
    from rich.console import Console

    from tutelage.people import list_raters
    from tutelage.people.rater_progress import find_shortage
    from tutelage.people.statistics.cache import Keeper

    store, study = open_existing(settings)
    with closing(store):
        whole = Keeper(store).compute(study)
        counts, statistics = whole.survey.counts, whole.statistics
        console = Console(highlight=False, soft_wrap=True)
        console.print(f"{study.name} ({study.state}): {describe(store, study)}", markup=False)
        console.print(f"database      {store.address}", markup=False)
        console.print(
            f"items         {counts.complete:,} of {counts.items:,} have all their answers "
            f"({counts.answered:,} of {counts.wanted:,}); {counted(statistics.effective, 'label', 'is')} surer than "
            "90 %"
        )
        shortage = find_shortage(store, study)
        if shortage is not None:
            console.print(
                f"quotas        ask for {counted(shortage.asked, 'more answer')}, and the items take {shortage.left:,}"
            )
        console.print(f"agreement     {_agreement(statistics.agreement)}")
        if not study.kind.traits.steps:
            console.print("              published: hh-rlhf 63 %, InstructGPT 72.6 %, MT-bench 81 %")
        for name, alpha in whole.agreements.items():
            interval = "" if alpha.low is None else f" ({alpha.low:.2f} to {alpha.high:.2f})"
            value = alpha.note if alpha.value is None else f"{alpha.value:.2f}{interval} (Krippendorff's alpha)"
            console.print(f"  {name:<18}{value}", markup=False)
        _print_rounds(console, whole.survey.rounds)
        _print_raters(console, [r for r in list_raters(store, study.id) if r.role == "rater"], whole)
    return 0


def _agreement(agreement: "PairAgreement") -> str:
    if agreement.value is None or agreement.low is None or agreement.high is None:
        return f"unknown: {agreement.note}"
    interval = f"{agreement.low:.1%} to {agreement.high:.1%}"
    return f"{agreement.value:.1%} ({interval}) on {counted(agreement.items, 'item')} with two raters or more"


def _print_rounds(console: "Console", rounds: "tuple[Round, ...]") -> None:
    """Print a line for each round, if there are several or any has a lineage."""
    if len(rounds) < 2 and not any(each.lineage for each in rounds):
        return
    for each in rounds:
        shares = (("agreement", each.agreement), ("ties", each.tie_share), ("wins", each.win_rate))
        figures = ", ".join(f"{name} {share:.0%}" for name, share in shares if share is not None)
        about = f"{each.policy or ', '.join(filter(None, each.samplers))}"
        console.print(
            f"round {each.number:<8}{each.complete:,} of {counted(each.items, 'item')}{', ' if figures else ''}"
            f"{figures}{f'; {about}' if about else ''}",
            markup=False,
        )


def _print_raters(console: "Console", raters: "list[Rater]", whole: "StudyStatistics") -> None:
    from rich.table import Table
    from rich.text import Text

    if not raters:
        return
    table = Table(box=None, pad_edge=False)
    for name in ("rater", "answers", "reliability", "interval", "golds", "repeats", "remarks"):
        table.add_column(name, justify="left" if name in ("rater", "remarks") else "right")
    raters = sorted(raters, key=lambda rater: rater.tallies.answered, reverse=True)
    for rater in raters[:LISTED]:
        statistics = whole.statistics.raters[rater.id]
        is_known = statistics.reliability is not None and statistics.low is not None and statistics.high is not None
        tallies = rater.tallies
        excluded = (f"excluded: {rater.excluded}",) if rater.excluded else ()
        table.add_row(
            Text(rater.name),
            f"{tallies.answered:,}",
            f"{statistics.reliability:.2f}" if is_known else "–",
            f"{statistics.low:.2f} – {statistics.high:.2f}" if is_known else "–",
            f"{tallies.gold_right}/{tallies.gold_seen}",
            f"{tallies.repeat_same}/{tallies.repeat_seen}",
            Text("; ".join((*excluded, *statistics.flags))),
        )
    console.print()
    console.print(table)
    others = raters[LISTED:]
    if others:
        answers = counted(sum(rater.tallies.answered for rater in others), "answer")
        console.print(f"and {counted(len(others), 'rater')} more with {answers}, as on the owner's page")


def write_payments(settings: Payments) -> int:
    """Write the table to a file, or print it."""
    from tutelage.people.remuneration import payment_csv

    store, study = open_existing(settings)
    with closing(store):
        text = payment_csv(store, study.id)
    if settings.out is None:
        print(text, end="")
        return 0
    try:
        create_private(settings.out)
        settings.out.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise TutelageError(f"{settings.out} cannot be written: {error.strerror or error}.") from error
    print(f"{settings.out}: {counted(text.count(chr(10)) - 1, 'row')}, with the identifiers of the platform")
    return 0
