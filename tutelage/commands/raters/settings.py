"""Settings of the statistics of a table of votes."""

from dataclasses import dataclass
from typing import Literal

import tyro

from tutelage.base.config.bounds import a_seed


@dataclass(frozen=True, kw_only=True)
class RatersSettings:
    """How well the raters of a table of votes agree, how reliable each of them is, and what the truth of each item
    probably is (after Dawid and Skene 1979)."""

    votes: tyro.conf.Positional[str]
    """The table, one vote per row: .csv, .tsv, .json, .jsonl or .parquet."""
    item: str = "item"
    """The column that says what was judged."""
    rater: str = "rater"
    """The column that says who judged."""
    choice: str = ""
    """The column with the choice: two or more classes, text or numbers. Without it `choice`; in the `votes.csv` of a
    study's export `verdict`, without what was skipped or excluded."""
    gold: str = ""
    """A column with known answers, where there are any; the labels are measured against them."""
    use_gold: bool = False
    """Learn from the known answers too, instead of only measuring against them."""
    model: Literal["auto", "majority", "coin", "biased", "hierarchical", "matrix"] = "auto"
    """How raters err. majority: all alike. coin: each with an accuracy. biased: and with favourite choices.
    hierarchical: and in a pattern that all share. matrix: each with a confusion matrix that shares nothing (Dawid and
    Skene). How much raters differ is estimated, except in matrix. auto: what predicts held-out votes best."""
    level: Literal["nominal", "ordinal", "interval"] = "nominal"
    """What alpha takes the choices for: names, an order, or numbers with distances."""
    out: str = ""
    """CSV file for the label of each item, with its posterior probability."""
    raters_out: str = ""
    """CSV file for all raters."""
    show: int = 20
    """Raters to print: the flagged ones first, then those with the most votes."""
    diagram: str = ""
    """SVG file for the reliability diagram: of the labels where answers are known, else of the predictions of held-out
    votes (with model auto)."""
    seed: int = 0
    """Seed of the bootstrap behind the interval of the agreement, and of the votes held out by auto."""

    def __post_init__(self) -> None:
        a_seed(self)
