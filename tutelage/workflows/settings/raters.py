"""Settings of the statistics of a table of votes."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class RatersSettings:
    """How well the raters of a table of votes agree, how reliable each of them is, and what the truth of each item
    probably is (Dawid and Skene 1979)."""

    votes: str
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
    seed: int = 0
    """Seed of the bootstrap behind the interval of the agreement."""
