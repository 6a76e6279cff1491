"""Output of `tutelage recipes`: the table of recipes, or the description of one."""

import json
from itertools import accumulate

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tutelage.algorithms.choice_rules import remarks
from tutelage.algorithms.registry import RECIPES, about, recipe_named
from tutelage.algorithms.table import pieces, plain, row, table
from tutelage.commands.recipes.settings import RecipesSettings

WIDEST = 31
"""Maximum width of a column in characters."""


def main(settings: RecipesSettings) -> int:
    """Print one recipe or all, as text or as JSON."""
    if settings.about is not None:
        recipe = recipe_named(settings.about)
        print(json.dumps(plain(recipe), indent=2) if settings.json else recipe_text(settings.about))
    elif settings.json:
        recipes = {name: plain(recipe) for name, recipe in RECIPES.items()}
        print(json.dumps({"recipes": recipes, "pieces": pieces()}, indent=2))
    else:
        print_recipes()
    return 0


def recipe_text(name: str) -> str:
    """Describe a recipe: its equation, its differences, its slots, and remarks."""
    recipe = recipe_named(name)
    slots = [f"  {slot:10s} {text}" for slot, text in row(recipe).items() if text]
    notes = [f"Note: {remark}" for remark in remarks(recipe)]
    return "\n".join([about(name), "", *slots, *notes])


def print_recipes() -> None:
    """Print all recipes with their slots, in as many columns as fit, and the pieces for each slot."""
    rows = table()
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=500)  # a pipe has no width
    columns, left_out = _fitting(rows, console.width)
    recipes = Table(box=None, pad_edge=False, header_style="bold", row_styles=["", "dim"])
    for column in columns:
        recipes.add_column("G" if column == "samples" else column, max_width=WIDEST, overflow="fold")
    for each in rows:
        recipes.add_row(*(escape(each[column]) for column in columns))
    console.print(recipes)
    if left_out:
        console.print(f"\n(omitted for lack of width: {', '.join(left_out)})")
    for slot, choices in pieces().items():
        console.print(f"\n[bold]{slot}[/bold]")
        listed = Table(box=None, pad_edge=False, show_header=False)
        for name, description in choices.items():
            listed.add_row(f"  {name:18s}", escape(description))
        console.print(listed)
    console.print(
        "\nOne recipe in full: --about grpo. Everything as JSON: --json. In tutelage improve, set a slot with "
        "--set surrogate.low=0.1 and a piece with --set surrogate=ImportanceWeighted."
    )


def _fitting(rows: list[dict[str, str]], width: int) -> tuple[list[str], list[str]]:
    """Return the columns that fit into `width` characters from the left, and the rest."""
    columns = list(rows[0])
    ends = accumulate(min(max(len(each[column]) for each in rows), WIDEST) + 2 for column in columns)
    fitting = [column for column, end in zip(columns, ends, strict=True) if end <= width]
    return fitting, columns[len(fitting) :]
