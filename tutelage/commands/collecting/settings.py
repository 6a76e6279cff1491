"""The settings of the commands of `tutelage collect`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tutelage import config
from tutelage.config.limits import a_seed, at_least
from tutelage.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The web application in which people compare answers."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
    """The study: its database file, the folder that holds it as study.sqlite, or with --db its name."""
    db: str = ""
    """Database to use instead of a file: a postgresql:// URL."""
    name: str = ""
    """The study's name, where a file holds several."""


@dataclass(frozen=True, kw_only=True)
class Init(Settings):
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
    rank: int | None = None
    """Old name: --rank N is --kind ranking --answers N."""
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
    """What raters are asked, in your own words. [default: Which response is better?, in the rater's language]"""
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
        self._read_old_name()
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
            "--rank": self.rank,
            "--kind": self.kind != DEFAULT.name,
            "--pairs": self.pairs != 1,
        }
        other = next((name for name, value in given.items() if value), None)
        if other is not None:
            raise TutelageError(
                f"{other} does not go with --live: every turn of a conversation is a pair, and comes from the models."
            )

    def _read_old_name(self) -> None:
        """`rank` was the name before there were other kinds than pairs and rankings."""
        from tutelage.people.kinds import DEFAULT
        from tutelage.people.kinds.ranking import RANKING

        if self.rank is None:
            return
        if self.kind not in (DEFAULT.name, RANKING.name) or self.answers not in (None, self.rank):
            raise TutelageError(
                "--rank N is the old name of --kind ranking --answers N; leave it out beside those."
            )
        object.__setattr__(self, "kind", RANKING.name)
        object.__setattr__(self, "answers", self.rank)

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
class Status(Settings):
    """Print how far the study is, how well its raters agree, and who stands out."""


@dataclass(frozen=True, kw_only=True)
class Export(Settings):
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


@dataclass(frozen=True, kw_only=True)
class Import(Settings):
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
    """What another word for a choice means, such as 1=a; once for each word. A name without = is the old spelling of
    --choice-column."""
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
        columns = [each for each in self.choice if "=" not in each]
        if len(columns) > 1:
            raise TutelageError(f"--choice {columns[1]} says not what it means; write it as {columns[1]}=a.")
        if columns:
            object.__setattr__(self, "choice_column", columns[0])
            object.__setattr__(self, "choice", tuple(each for each in self.choice if "=" in each))


@dataclass(frozen=True, kw_only=True)
class Simulate(Settings):
    """Let simulated raters answer over HTTP, as browsers would."""

    url: str = ""
    """Server to use; without one it is started for the time."""
    raters: int = 6
    """How many raters; of every dozen or less, one is careless, one adversarial, the others ordinary."""
    answers: int | None = None
    """Answers of each rater at most."""
    think: float = 0.0
    """Mean seconds that a rater takes to answer (drawn anew each time); 0 answers at once, as no person does."""
    gold: str = "tutelage.simulate:gold"
    """What the raters value, as module:function of prompts and completions."""
    seed: int = 0
    """Seed of the raters."""

    def __post_init__(self) -> None:
        a_seed(self)


@dataclass(frozen=True, kw_only=True)
class Judge(Settings):
    """Let a model judge everything as one more rater, counted apart from people: a language model behind an
    OpenAI-compatible endpoint, asked about both orders of each pair, or a reward model."""

    rater: str = ""
    """Name of the rater; that of the model when empty. One name is one judge: another model or prompt needs another."""
    endpoint: str = ""
    """Address of the endpoint that serves --model, such as http://localhost:8000/v1; its key, if it wants one, is read
    from TUTELAGE_ENDPOINT_KEY."""
    model: str = ""
    """The endpoint's model."""
    temperature: float = 0.0
    """Of the endpoint's model."""
    template: Path | None = None
    """File with the prompt, if not the built-in one: {question}, {guidelines}, {conversation}, {first} and {second} are
    filled in, and the reply has to end with [[A]], [[B]] or [[C]]."""
    reward: str = ""
    """Reward model (folder) or module:function of prompts and answers, instead of an endpoint."""
    engine: config.EngineName = "auto"
    """How models compute: plain, by transformers' modules; cpu, by kernels compiled for this processor; auto: cpu on a
    processor, else plain."""
    tie: float = 0.0
    """Scores no further apart than this are equal."""
    step: float = 1.0
    """Scores further apart by this are one step of strength more."""
    limit: int | None = None
    """Questions at most; the next call goes on."""

    def __post_init__(self) -> None:
        if bool(self.endpoint) == bool(self.reward):
            raise TutelageError("A judge is either a model behind --endpoint or a --reward.")
        if self.endpoint and not self.model:
            raise TutelageError("--endpoint needs --model, the name by which it serves the judge.")
        if self.step <= 0 or self.tie < 0 or self.temperature < 0:
            raise TutelageError("--step has to be above 0, --tie and --temperature at least 0.")


@dataclass(frozen=True, kw_only=True)
class Next(Settings):
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


@dataclass(frozen=True, kw_only=True)
class Iterate:
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
