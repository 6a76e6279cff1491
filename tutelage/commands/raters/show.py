"""Output of `tutelage raters`: tables about the raters of a table of votes."""

from collections.abc import Mapping

import numpy as np
from rich.console import Console
from rich.table import Table

from tutelage.base.nouns import counted
from tutelage.commands.display import display
from tutelage.commands.raters.run import RatersResult, flag_text, raters
from tutelage.commands.raters.settings import RatersSettings
from tutelage.commands.results import interval_text
from tutelage.report.reliability_diagram import write_diagram
from tutelage.stats.calibration import label_hits
from tutelage.stats.intervals import wilson
from tutelage.stats.model_choice import Choice


def main(settings: RatersSettings) -> int:
    """Compute, write and print the statistics."""
    with display():
        result = raters(settings)
    print_raters(settings, result, show=settings.show)
    if settings.diagram:
        write_diagram(settings.diagram, result.calibration())
        print(f"reliability diagram written to {settings.diagram}")
    return 0


def print_raters(settings: RatersSettings, result: RatersResult, *, show: int) -> None:
    """Print the votes, `show` raters, the accuracy on known answers, and the files that were written."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    _print_votes(console, settings, result)
    _print_model(console, result)
    _print_raters(console, settings, result, show)
    _print_gold(console, settings, result)
    if settings.out:
        console.print(f"labels of {counted(len(result.file.votes.items), 'item')} written to {settings.out}")
    if settings.raters_out:
        console.print(f"{counted(len(result.file.votes.raters), 'rater')} written to {settings.raters_out}")


def _print_votes(console: Console, settings: RatersSettings, result: RatersResult) -> None:
    votes = result.file.votes
    console.print(
        f"{counted(len(votes), 'vote')} on {counted(len(votes.items), 'item')} by "
        f"{counted(len(votes.raters), 'rater')}; choices: {', '.join(map(printable, votes.choices))}"
    )
    for note in result.file.notes:
        console.print(f"note: {printable(note)}")
    agreement, alpha = result.agreement, result.alpha
    if agreement.value is None:
        console.print(f"agreement {agreement.note}; the reliabilities below are assumptions, not measurements")
    else:
        console.print(
            f"agreement {agreement.value:.3f}{interval_text(agreement.low, agreement.high)}: two raters of an item "
            f"choose the same ({counted(agreement.items, 'item')} with two or more)"
        )
    console.print(f"alpha {alpha.note}" if alpha.value is None else f"alpha {alpha.value:.3f} ({settings.level})")


def _print_model(console: Console, result: RatersResult) -> None:
    """Print the chosen model, the reason, the other models, and the calibration of its predictions of votes."""
    choice = result.choice
    if choice is None:
        console.print(f"rater model: {result.model_name}")
    else:
        _print_preference(console, result)
        console.print(
            f"rater model: {result.model_name}, the simplest within two standard errors of the best at predicting "
            f"{counted(choice.votes, 'held-out vote')}"
        )
        _print_candidates(console, choice, result.gold_accuracy())
        console.print(f"  expected calibration error of its predictions of these votes: {choice.calibration.ece:.3f}")
        for link in choice.links:
            one, other = (printable(result.file.votes.raters[code]) for code in (link.follower, link.leader))
            console.print(f"note: {one} and {other} {_link_text(link.share, link in choice.evident)}")
    if result.model_name == "ordinal" and len(result.file.votes.choices) > 2:
        console.print(
            "note: a few votes an item hardly tell middle classes from small differences, so the probabilities of the "
            "labels rest on assumed shapes of differences; known answers (--gold) measure them"
        )
    if not result.model.converged:
        console.print(
            "note: the rater model has not converged; its figures may change, most where raters contradict each other"
        )


def _print_preference(console: Console, result: RatersResult) -> None:
    """Print which model has the best labels by the known answers."""
    preference = result.gold_preference()
    if preference is None:
        return
    name, ahead, within = preference
    if name == result.model_name:
        console.print(f"the known answers prefer {name}, the chosen model: no other has more right labels")
    else:
        console.print(
            f"the known answers prefer {name} (--model {name}): its labels are right more often than those of the "
            f"chosen model, by {ahead:.3f} ± {within:.3f}"
        )


def _print_candidates(console: Console, choice: Choice, accuracy: Mapping[str, float]) -> None:
    """Print the prediction of votes and the labels of each candidate, with their `accuracy` by the known answers."""
    for name, fit in choice.fits.items():
        differing = choice.differing(name)
        labels = "" if name == choice.name else f"; {counted(differing, 'label')} of {len(fit.posterior):,} differ"
        labels += f"; {accuracy[name]:.3f} right by the known answers" if name in accuracy else ""
        if name not in choice.predicted:
            console.print(f"  {name:<12} predicts no votes{labels}")
            continue
        below = f"{choice.deficit[name]:.3f} ± {choice.error[name]:.3f} below the best"
        note = below if choice.deficit[name] else "the best"
        barred = "" if name in choice.selectable else " (not selected: its classes are clusters of items, not an order)"
        console.print(f"  {name:<12} log-likelihood of a vote {choice.predicted[name]:.3f}, {note}{labels}{barred}")


def _link_text(share: float, evident: bool) -> str:
    """Return the note on two raters whose common votes count as one."""
    if evident:
        return f"seem to copy or to share a source ({share:.0%} of their common votes); these count as one"
    return (
        f"agree where the others differ ({share:.0%} of their common votes count as one); votes cannot tell whether "
        "they share a source or the others were misled"
    )


def _print_raters(console: Console, settings: RatersSettings, result: RatersResult, show: int) -> None:
    votes, model = result.file.votes, result.model
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("rater", overflow="fold")
    repeats = result.file.repeats
    more = [*(["gold"] if settings.gold else []), *(["repeats"] if repeats else [])]
    for column in ("votes", "reliability", "interval", *more):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("flags", overflow="fold")
    counts = votes.per_rater()
    right, totals = result.gold_answers()
    order = result.by_interest()
    for r in order[:show]:
        cells = [printable(votes.raters[r]), f"{counts[r]:,}", f"{model.accuracy[r]:.2f}"]
        cells.append(f"{model.low[r]:.2f}-{model.high[r]:.2f}")
        if settings.gold:
            cells.append(f"{right[r]}/{totals[r]}")
        if repeats:
            again = repeats.get(votes.raters[r])
            cells.append(f"{again.same}/{again.seen}" if again else "")
        table.add_row(*cells, printable(flag_text(result.flags[r])))
    console.print()
    console.print(table)
    if len(order) > show:
        rest = "" if settings.raters_out else "; --raters-out FILE writes all"
        console.print(f"({show} of {counted(len(order), 'rater')}: the flagged first, then the busiest{rest})")
    console.print("reliability: the probability that a choice is right, with its 95 % interval")
    if repeats:
        console.print("repeats: items judged again with the same choice, of all that were judged again")


def _print_gold(console: Console, settings: RatersSettings, result: RatersResult) -> None:
    """Print how often the majority and the model give the known answer."""
    gold = result.file.gold
    if gold is None:
        return
    gold_items = np.flatnonzero(gold >= 0)
    console.print()
    console.print(f"accuracy on the {counted(len(gold_items), 'item')} with a known answer, with 95 % interval:")
    measured = {"majority": float(result.majority[gold_items, gold[gold_items]].sum())}
    if not settings.use_gold:
        measured["model"] = float(label_hits(result.model.posterior[gold_items], gold[gold_items]).sum())
    _print_measured(console, settings, result, measured, len(gold_items))


def _print_measured(
    console: Console, settings: RatersSettings, result: RatersResult, measured: Mapping[str, float], total: int
) -> None:
    for name, right in measured.items():
        share = wilson(right, total)
        console.print(f"  {name:<9} {share.value:.3f}{interval_text(share.low, share.high)}")
    console.print("  (a tie of n choices counts 1/n for the majority)")
    labels = result.label_calibration()
    if labels is not None:
        mean, right = result.confidence()
        console.print(
            f"  the model's labels have a mean probability of {mean:.3f} and are right in {right:.3f}; expected "
            f"calibration error {labels.ece:.3f}, Brier score {labels.brier:.3f}"
        )
    if settings.use_gold:
        console.print("  (the model was fitted to these answers, so they cannot measure it)")


def printable(text: str) -> str:
    """Replace characters that control a terminal in a text from a file."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
