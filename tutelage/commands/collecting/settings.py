"""The settings of the commands of `tutelage collect`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tutelage import config
from tutelage.config.limits import at_least
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
    """Make a study, or add questions to one: from ready pairs, from what `tutelage sample` wrote, or by sampling."""

    from_pairs: str = ""
    """Ready pairs: a file or hub data set of preferences, whose labels are left aside."""
    from_sample: Path | None = None
    """Folder that `tutelage sample --pairs` wrote."""
    prompts: str = ""
    """Prompts to sample answers to: a file or hub data set."""
    model: str = ""
    """Model to sample from: a folder or hub name."""
    against: str = ""
    """A second model; every pair then has one answer of each."""
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
    question: str = ""
    """What raters are asked. [default: Which response is better?]"""
    criteria: tuple[str, ...] = ()
    """Rows below the overall verdict, for example: accurate clear engaging."""
    scale: int | None = None
    """Steps of the scale. Of a pair: those to each side of the bar, 3 for seven points (the default) to 1 for plain
    better or worse."""
    guidelines: Path | None = None
    """File in Markdown that raters read first and may open at any time."""
    overlap: int = 2
    """Raters per question."""

    def __post_init__(self) -> None:
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
class Serve(Settings):
    """Serve the study to browsers until ctrl-C."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in."""
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    public_url: str = ""
    """Where browsers reach the site, if a proxy stands in between: https://rate.example.org."""


@dataclass(frozen=True, kw_only=True)
class Invite(Settings):
    """Print a link that lets somebody in."""

    role: Literal["rater", "owner"] = "rater"
    """What whoever follows the link may do."""
    rater: str = ""
    """Bring back this rater, who is known already, instead of inviting somebody new."""
    uses: int = 1
    """How many people may use the link."""
    days: float = 14.0
    """How long the link is good for."""
    note: str = ""
    """For your own memory: whom it is for."""
    url: str = "http://127.0.0.1:8000"
    """Where the site is reached."""


@dataclass(frozen=True, kw_only=True)
class Status(Settings):
    """Print how far the study is, how well its raters agree, and who stands out."""


@dataclass(frozen=True, kw_only=True)
class Export(Settings):
    """Write preferences, votes and a manifest that accounts for every vote into a new folder."""

    out: Path
    """Folder to write; it must not exist."""
    kinds: tuple[Literal["human", "llm", "simulated"], ...] = ("human", "simulated")
    """Kinds of rater whose votes count."""
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


@dataclass(frozen=True, kw_only=True)
class Import(Settings):
    """Take in what exists elsewhere: a folder that `collect export` wrote (as a new study), or a table of votes."""

    source: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
    """The folder, or a table of votes: csv, tsv, json, jsonl or parquet."""
    prompt: str = "prompt"
    """Column with the prompt."""
    a: str = "completion_a"
    """Column with the first response."""
    b: str = "completion_b"
    """Column with the second response."""
    choice: str = "preference"
    """Column with the choice: a, b, tie, both_bad, a-is-better, b-is-slightly-better, …"""
    rater: str = "evaluator"
    """Column with the rater."""
    model_a: str = ""
    """Column with the model of the first response, if there is one."""
    model_b: str = ""
    """Column with the model of the second response, if there is one."""
    time: str = ""
    """Column with the time of the vote, if there is one."""
    reason: str = ""
    """Column with the rater's reason, if there is one."""


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
    new ones that --reward cannot tell apart; models: new ones between --new and --old."""
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
        at_least(self, pairs=1)
