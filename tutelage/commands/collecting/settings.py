"""Where a study is, the settings that all commands of `tutelage collect` share; `status` and `next`."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from tutelage.base import config
from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class CollectSettings:
    """The web application in which people compare answers."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
    """The study: its database file, the folder that holds it as study.sqlite, or with --db its name."""
    db: str = ""
    """Database to use instead of a file: a postgresql:// URL."""
    name: str = ""
    """The study's name, where a file holds several."""


@dataclass(frozen=True, kw_only=True)
class Status(CollectSettings):
    """Print how far the study is, how well its raters agree, and who stands out."""


@dataclass(frozen=True, kw_only=True)
class Next(CollectSettings):
    """Say which questions are asked next. At least 30 % of the new ones are always drawn at random, so that there is an
    unbiased sample of the study whatever else is asked."""

    by: Literal["finish-first", "random", "uncertainty", "models"] = "finish-first"
    """finish-first: questions that were begun, then new ones at random; random: any open one at random; uncertainty:
    new ones that --reward cannot tell apart; models: new ones between --new and --old. All but random ask about the
    newest round first."""
    reward: tuple[str, ...] = ()
    """Reward models (folders) or module:function: one is unsure of pairs with close scores, several of those that they
    disagree about."""
    engine: config.EngineName = "auto"
    """How models compute: plain, by transformers' modules; cpu, by kernels compiled for this processor; auto: cpu on a
    processor, else plain."""
    new: str = ""
    """The newer model, as the study names it; the policy of the last round when empty."""
    old: str = ""
    """The older model; any other than the newer one when empty."""

    def __post_init__(self) -> None:
        if (self.by == "uncertainty") != bool(self.reward):
            raise TutelageError("--by uncertainty needs --reward, and nothing else does.")
        if (self.new or self.old) and self.by != "models":
            raise TutelageError("--new and --old go with --by models.")
