"""Settings of `tutelage judge`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tyro

from tutelage.base.config.bounds import a_seed, at_least
from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """A language model that judges, measured and improved by people's votes."""

    study: tyro.conf.Positional[str]
    """Study of pairs with votes: its folder or database."""
    judge: Path
    """File of the judge, as in --reward judge:FILE."""
    study_name: str = ""
    """Name of the study, if the database holds several."""


@dataclass(frozen=True, kw_only=True)
class Align(JudgeSettings):
    """Choose the prompt of a judge on half of a study's prompts, and measure it on the other half, before and after.
    The judge is written only if it agrees with people more often than before, by more than the interval."""

    out: Path
    """Folder for judge.toml, the aligned judge, and alignment.json, the figures."""
    texts: tuple[Path, ...] = ()
    """Files with further rubrics to try, in addition to the built-in variants of the judge's own."""
    examples: int = 4
    """Pairs with people's preferences to show to the judge; 0 for none."""
    limit: int = 400
    """Maximum number of pairs of the study, of both halves together."""
    seed: int = 0
    """Random seed of the halves and of the examples."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, examples=0, limit=1)
        if self.judge.parent.resolve() == self.out.resolve():
            raise TutelageError("--out is the folder of the judge: choose another one, so that no file is replaced.")


SUBCOMMANDS: Mapping[str, type[JudgeSettings]] = {"align": Align}
"""Settings classes of the subcommands, by name."""
