"""The settings of `tutelage collect init` and `tutelage iterate`: where questions come from."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from tutelage.base import config
from tutelage.base.config.limits import a_seed, at_least
from tutelage.base.errors import TutelageError
from tutelage.commands.collecting.settings import CollectSettings


@dataclass(frozen=True, kw_only=True)
class Init(CollectSettings):
    """Make a study, or add questions to one: from ready pairs, from what `tutelage sample` wrote, or by sampling. With
    --live raters talk to two models, and every turn is a question."""

    from_pairs: str = ""
    """Ready pairs: a file or hub data set of preferences, whose labels are left aside."""
    from_sample: Path | None = None
    """Folder that `tutelage sample --pairs` wrote."""
    prompts: str = ""
    """Prompts to sample answers to: a file or hub data set. With --live: suggested first messages."""
    model: str = ""
    """Model to sample from: a folder or hub name; with --live also the address of an endpoint, such as
    http://localhost:8000/v1#MODEL (without #MODEL the only one that it serves)."""
    against: str = ""
    """A second model; every pair then has one answer of each. With --live it is --model itself when left out."""
    live: bool = False
    """Let raters hold conversations with both models: they write, two answers come, they choose, and the conversation
    goes on from the better one. Again on the same study, other models or settings are in force from the next message
    on."""
    turns: int = 4
    """Messages of a rater in a live conversation at most."""
    pairs: int = 1
    """Questions per prompt, when sampling: pairs of answers, or with --answers so many sets of them."""
    kind: str = "pair"
    """What raters do with answers: pair (say which of two is better), or another kind of `tutelage.people.kinds`."""
    answers: int | None = None
    """Answers in a question, where the kind takes more than two (up to 6). Pairs unless given."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    seed: int = 0
    """Seed of the sampling."""
    engine: config.EngineName = "auto"
    """How models compute: plain, by transformers' modules; cpu, by kernels compiled for this processor; auto: cpu on a
    processor, else plain."""
    limit: int | None = None
    """Prompts or ready pairs at most."""
    round: int = 1
    """The round that the questions belong to."""
    golds: str = ""
    """Questions with a known answer, mixed in to see who pays attention: preferences that are beyond doubt."""
    training: str = ""
    """Questions to practise on before the real ones: preferences, with a column `explanation` if there is one."""
    language: tuple[str, ...] = ()
    """Languages in which raters see the pages: en, de, es, zh, ar. The first is the usual one; of several, each rater
    gets the one that the browser asks for, and may choose. [default: en]"""
    question: str = ""
    """What raters are asked, in your own words. [default: one that fits --kind, in the rater's language]"""
    criteria: tuple[str, ...] = ()
    """Rows below the overall verdict, for example: accurate clear engaging."""
    scale: int | None = None
    """Steps of the scale. Of a pair: those to each side of the bar, 3 for seven points (the default) to 1 for plain
    better or worse."""
    guidelines: Path | None = None
    """File in Markdown that raters read first and may open at any time."""
    corrections: bool = False
    """Let raters write a better response, by editing one or anew."""
    spans: tuple[str, ...] = ()
    """Let raters mark words that are wrong; these are the categories, for example: fact reasoning tone."""
    overlap: int | None = None
    """Raters per question. [default: 2; with --live 1, the rater who talks]"""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, turns=1)
        self._check_languages()
        if self.live:
            self._check_live()
            return
        if self.turns != 4:
            raise TutelageError("--turns is for live conversations: give --live too.")
        sources = [bool(self.from_pairs), self.from_sample is not None, bool(self.prompts)]
        if sum(sources) > 1:
            raise TutelageError(
                "Questions come from one place: give --from-pairs, --from-sample or --prompts."
            )
        if bool(self.prompts) != bool(self.model):
            raise TutelageError("Sampling takes both --prompts and --model.")
        if self.against and not self.model:
            raise TutelageError("--against needs --model to be compared with.")
        if self.pairs < 1:
            raise TutelageError(f"--pairs is {self.pairs}; ask about at least one pair per prompt.")
        self._check_kind()

    def _check_languages(self) -> None:
        from tutelage.people.languages import check_languages

        if self.language:
            check_languages(self.language)

    def _check_live(self) -> None:
        from tutelage.people.kinds import DEFAULT

        if not self.model:
            raise TutelageError(
                "--live needs --model, and usually --against: the models that raters talk to."
            )
        given = {
            "--from-pairs": self.from_pairs,
            "--from-sample": self.from_sample,
            "--answers": self.answers,
            "--kind": self.kind != DEFAULT.name,
            "--pairs": self.pairs != 1,
        }
        other = next((name for name, value in given.items() if value), None)
        if other is not None:
            raise TutelageError(
                f"{other} does not go with --live: every turn of a conversation is a pair, and comes from the models."
            )

    def _check_kind(self) -> None:
        from tutelage.people.kinds import find_kind

        traits = find_kind(self.kind).traits
        if self.answers is None:
            return
        if self.answers not in traits.sizes:
            least, most = traits.sizes[0], traits.sizes[-1]
            raise TutelageError(
                f"--answers is {self.answers}; a study that {traits.does} shows "
                f"{least if least == most else f'{least} to {most}'} answers at a time."
            )
        if self.from_pairs or self.golds or self.training:
            raise TutelageError(
                "--answers asks about answers of --from-sample or --prompts; ready pairs, --golds and --training have "
                "two answers each."
            )


@dataclass(frozen=True, kw_only=True)
class IterateSettings:
    """Open the next round of a study: sample answers of the new policy, beside those of the older one, as new questions
    to the raters. Where the policy comes from (weights, reward model, judgements) is kept in the study, and the owner's
    page shows how agreement, ties and wins move from round to round."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
    """The study: its database file, the folder that holds it as study.sqlite, or with --db its name."""
    policy: str
    """The new policy: a folder, such as RUN/model of `tutelage improve`, or hub name."""
    prompts: str
    """Prompts to answer: a file or hub data set."""
    against: str = ""
    """The older policy; the one that the last round was about when empty, "none" to compare the new one's answers with
    each other."""
    pairs: int = 1
    """Pairs of answers to ask about per prompt."""
    limit: int | None = None
    """Prompts at most."""
    db: str = ""
    """Database to use instead of a file: a postgresql:// URL."""
    name: str = ""
    """The study's name, where a file holds several."""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    engine: config.EngineName = "auto"
    """How models compute: plain, by transformers' modules; cpu, by kernels compiled for this processor; auto: cpu on a
    processor, else plain."""
    seed: int = 0
    """Seed of the sampling."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, pairs=1)
