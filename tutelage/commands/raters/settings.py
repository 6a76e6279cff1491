"""Settings of the statistics of a table of votes."""

from dataclasses import dataclass
from typing import Literal

import tyro

from tutelage.base.config.bounds import a_seed


@dataclass(frozen=True, kw_only=True)
class RatersSettings:
    """Measure the agreement of the raters of a table of votes, the reliability of each, and the probable truth of each
    item (after Dawid and Skene 1979)."""

    votes: tyro.conf.Positional[str]
    """Table with one vote per row: .csv, .tsv, .json, .jsonl or .parquet."""
    item: str = "item"
    """Column of the judged item."""
    rater: str = "rater"
    """Column of the rater."""
    choice: str = ""
    """Column of the choice: two or more classes, text or numbers. [default: `choice`; in the `votes.csv` of a study's
    export `verdict`, without skipped or excluded votes]"""
    gold: str = ""
    """Column of known answers, if any; the labels are measured against them."""
    keep_rejected: bool = False
    """Count work that a platform rejected, returned, discarded or cancelled, according to a column such as `status` or
    `was_cancelled`; by default it is left out."""
    use_gold: bool = False
    """Fit the model to the known answers too, instead of only measuring against them."""
    strength: str = ""
    """Column of the strength of a choice for a side, such as `strength` in the `votes.csv` of a study's export: the
    classes are then the sides with their strengths, in order, around the tie."""
    order: str = ""
    """The choices in their order, separated by commas, for example `worse,equal,better`. [default: numbers with --level
    ordinal or interval; three choices of which one is a tie, such as `a`, `tie`, `b`; otherwise none]"""
    model: Literal["auto", "majority", "coin", "biased", "ordinal", "hierarchical", "matrix"] = "auto"
    """Error model of raters. majority: no errors, all alike. coin: an accuracy each. biased: also preferred choices.
    ordinal: thresholds of each rater on a latent difference, for two or ordered choices. hierarchical: biased with a
    shared confusion pattern. matrix: independent confusion matrices (Dawid and Skene). The variance between raters is
    estimated, except in matrix. auto: the simplest of the best predictors of held-out votes."""
    level: Literal["nominal", "ordinal", "interval"] = "nominal"
    """Scale of the choices: names, an order, or numbers with distances."""
    out: str = ""
    """CSV file of the label of each item, with its posterior probability."""
    raters_out: str = ""
    """CSV file of all raters."""
    show: int = 20
    """Number of raters to print: flagged ones first, then those with the most votes."""
    diagram: str = ""
    """SVG file of the reliability diagram: of the labels if answers are known, else of the predictions of held-out
    votes (with model auto)."""
    seed: int = 0
    """Random seed of the bootstrap of the agreement's interval, and of the votes held out by auto."""

    def __post_init__(self) -> None:
        a_seed(self)
