"""The settings of `tutelage collect export` and `import`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tutelage.base.errors import TutelageError
from tutelage.commands.collecting.settings import CollectSettings


@dataclass(frozen=True, kw_only=True)
class Export(CollectSettings):
    """Write preferences, votes and a manifest that accounts for every vote into a new folder."""

    out: Path
    """Folder to write; it must not exist."""
    kinds: tuple[Literal["human", "llm", "simulated"], ...] = ("human",)
    """Kinds of rater whose votes count: people, unless model judges (llm) or simulated raters are named."""
    versions: tuple[int, ...] = ()
    """Versions of the question whose votes count; all, if there is only one."""
    ties: Literal["drop", "keep"] = "drop"
    """What becomes of pairs that most found equal."""
    min_votes: int = 1
    """Votes for a side that a pair needs."""
    use_strength: bool = True
    """Let a vote count by what its strength proved worth."""
    weights: bool = False
    """Weight rows by strength."""
    margins: bool = False
    """Ask for a margin by strength."""
    redact: bool = False
    """Write [email], [phone], [iban], [card], [ip], [name] or [address] in place of what looks like personal data in
    texts that people wrote."""
    names: bool = False
    """Write the names of raters into raters.jsonl, the file about raters. Everywhere else, and without this everywhere,
    a pseudonym such as rater-7 stands for each: 7 is the rater's number in the study."""


@dataclass(frozen=True, kw_only=True)
class Import(CollectSettings):
    """Take in what exists elsewhere: a folder that `collect export` wrote (as a new study), or a table of votes."""

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """The folder, or a table of votes: csv, tsv, json, jsonl or parquet."""
    prompt: tuple[str, ...] = ("prompt",)
    """Column with the prompt; several are joined by blank lines."""
    a: str = "completion_a"
    """Column with the first response."""
    b: str = "completion_b"
    """Column with the second response."""
    choice_column: str = "preference"
    """Column with the choice: a, b, tie, both_bad, a-is-better, b-is-slightly-better, …"""
    choice: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """What another word for a choice means, such as 1=a; once for each word."""
    rater: str = "evaluator"
    """Column with the rater."""
    annotators: tuple[str, ...] = ()
    """Columns that each hold the choices of one rater, after whom they are named, in place of --choice-column and
    --rater; an empty cell is no vote."""
    model_a: str = ""
    """Column with the model of the first response, if there is one."""
    model_b: str = ""
    """Column with the model of the second response, if there is one."""
    time: str = ""
    """Column with the time of the vote, if there is one."""
    reason: str = ""
    """Column with the rater's reason, if there is one."""
    partial: bool = False
    """Leave out the votes that cannot be used; else nothing is imported where there is one."""

    def __post_init__(self) -> None:
        for each in self.choice:
            if "=" not in each:
                raise TutelageError(
                    f"--choice {each} does not say what it means: write --choice {each}=a for a choice, or "
                    f"--choice-column {each} for a column."
                )
