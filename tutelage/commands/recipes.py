"""`tutelage recipes`: the algorithms that `tutelage improve` knows, as one table."""

import json
from dataclasses import dataclass
from itertools import accumulate

WIDEST = 31
"""Characters of a column before its cells wrap."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """List the reinforcement-learning recipes and the pieces they are made of, or tell about one."""

    about: str | None = None
    """Name of one recipe (or a recipe of your own as module:NAME): its equation, what it differs in, its slots."""
    json: bool = False
    """Print everything as JSON, for other programs."""


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.algorithms import RECIPES, pieces, plain, recipe_named

    if settings.about is not None:
        recipe = recipe_named(settings.about)
        print(json.dumps(plain(recipe), indent=2) if settings.json else _told(settings.about))
    elif settings.json:
        known = {name: plain(recipe) for name, recipe in RECIPES.items()}
        print(json.dumps({"recipes": known, "pieces": pieces()}, indent=2))
    else:
        _print_table()
    return 0


def _told(name: str) -> str:
    from tutelage.algorithms import about, recipe_named
    from tutelage.algorithms.checks import remarks
    from tutelage.algorithms.table import row

    recipe = recipe_named(name)
    slots = [f"  {slot:10s} {text}" for slot, text in row(recipe).items() if text]
    said = [f"Note: {remark}" for remark in remarks(recipe)]
    return "\n".join([about(name), "", *slots, *said])


def _print_table() -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from tutelage.algorithms import pieces, table

    rows = table()
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=500)  # a pipe has no edge to fold at
    columns, left_out = _fitting(rows, console.width)
    shown = Table(box=None, pad_edge=False, header_style="bold", row_styles=["", "dim"])
    for column in columns:
        shown.add_column("G" if column == "samples" else column, max_width=WIDEST, overflow="fold")
    for row in rows:
        shown.add_row(*(escape(row[column]) for column in columns))
    console.print(shown)
    if left_out:
        console.print(f"\n(left out for want of width: {', '.join(left_out)})")
    for slot, known in pieces().items():
        console.print(f"\n[bold]{slot}[/bold]")
        told = Table(box=None, pad_edge=False, show_header=False)
        for name, says in known.items():
            told.add_row(f"  {name:18s}", escape(says))
        console.print(told)
    console.print(
        "\nOne recipe in full: --about grpo. Everything as JSON: --json. In tutelage improve, set a slot with "
        "--set surrogate.low=0.1 and a piece with --set surrogate=ImportanceWeighted."
    )


def _fitting(rows: list[dict[str, str]], width: int) -> tuple[list[str], list[str]]:
    """Columns that fit into `width` characters from the left, and the rest."""
    columns = list(rows[0])
    ends = accumulate(min(max(len(row[column]) for row in rows), WIDEST) + 2 for column in columns)
    kept = [column for column, end in zip(columns, ends, strict=True) if end <= width]
    return kept, columns[len(kept) :]
