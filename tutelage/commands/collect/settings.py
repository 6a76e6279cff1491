"""The settings of `tutelage collect`: its subcommands, and the settings of those whose modules are slow to import."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tutelage.base import config
from tutelage.base.config.bounds import a_seed, at_least
from tutelage.base.errors import TutelageError
from tutelage.commands.collect.connections import Token, Webhook
from tutelage.commands.collect.erasure import Forget
from tutelage.commands.collect.invites import Invite
from tutelage.commands.collect.payments import Payments
from tutelage.commands.collect.subcommands import SETTINGS
from tutelage.commands.collect.transfer import Backup, Export, Import, Restore
from tutelage.commands.serve.settings import PORT
from tutelage.commands.study import CollectSettings


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
class Serve(CollectSettings):
    """Serve a study to browsers until ctrl-C, or several, each below /s/NAME."""

    more: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[STUDY ...]")] = ()
    """More studies. A folder of studies stands for all that lie in it."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in."""
    port: int = PORT
    """Port to listen on; 0 takes a free one."""
    public_url: str = ""
    """Where browsers reach the site, if a proxy stands in between: https://rate.example.org, or https://example.org/rating."""
    owner: str = ""
    """Name of the owner whom the printed link signs in; made where there is none of that name. [default: the first
    owner]"""
    oidc_issuer: str = ""
    """OpenID provider at which owners and reviewers sign in: https://id.example.org."""
    oidc_client: str = ""
    """Client id of this server there; the secret is read from TUTELAGE_OIDC_SECRET, or from the file that
    TUTELAGE_OIDC_SECRET_FILE names. The provider sends people back to PUBLIC-URL/sign-in/callback,
    whether one study is served or several."""
    proxy_user_header: str = ""
    """Header in which a proxy says who signed in there, such as X-Forwarded-User; needs --trusted-proxy."""
    trusted_proxy: tuple[str, ...] = ()
    """Addresses or networks of that proxy; from any other the header counts for nothing."""
    owners: tuple[str, ...] = ()
    """Owners among those who sign in: e-mail addresses, domains (@example.org), or names of the proxy."""
    reviewers: tuple[str, ...] = ()
    """Reviewers among them."""
    webhook: str = ""
    """Address that is told as JSON what comes into the inbox, every minute where there is something; signed with
    TUTELAGE_WEBHOOK_SECRET, if that is set."""
    mail_to: str = ""
    """E-mail address that is told the same; needs --smtp."""
    mail_from: str = ""
    """Sender of mails: of these, and of personal links that owners mail from the page of a rater, which needs --smtp
    too. [default: the address of --mail-to]"""
    mail_language: str = ""
    """Language of these mails: en, de, es, zh or ar; the usual one of the study when empty."""
    engine: config.EngineName = "auto"
    """How models of live conversations compute that are folders: plain, by transformers' modules; cpu, by kernels
    compiled for this processor; auto: cpu on a processor, else plain."""
    smtp: str = ""
    """Mail server: smtp://user@mail.example.org:587; its password is read from TUTELAGE_SMTP_PASSWORD."""

    def __post_init__(self) -> None:
        if bool(self.mail_to or self.mail_from) != bool(self.smtp):
            raise TutelageError(
                "Mail takes --smtp, the server, and --mail-to, who is told of the inbox, or --mail-from, who sends "
                "raters their links."
            )
        if self.mail_language and not self.mail_to:
            raise TutelageError("--mail-language is that of the mails to --mail-to; give that too.")
        if bool(self.oidc_issuer) != bool(self.oidc_client):
            raise TutelageError("Signing in at a provider takes both --oidc-issuer and --oidc-client.")
        if bool(self.proxy_user_header) != bool(self.trusted_proxy):
            raise TutelageError("Signing in by a proxy takes both --proxy-user-header and --trusted-proxy.")
        if bool(self.owners or self.reviewers) != bool(self.oidc_issuer or self.proxy_user_header):
            raise TutelageError(
                "Signing in takes --owners or --reviewers, who may, and --oidc-issuer or --proxy-user-header."
            )
        if self.more and self.name:
            raise TutelageError("--name names one study of a file; leave it out beside several.")


@dataclass(frozen=True, kw_only=True)
class Status(CollectSettings):
    """Print how far the study is, how well its raters agree, and who stands out."""


@dataclass(frozen=True, kw_only=True)
class Simulate(CollectSettings):
    """Let simulated raters answer over HTTP, as browsers would."""

    url: str = ""
    """Server to use; without one it is started for the time."""
    raters: int = 6
    """How many raters; of every dozen or less, one is careless, one adversarial, the others ordinary."""
    answers: int | None = None
    """Answers of each rater at most."""
    think: float = 0.0
    """Mean seconds that a rater takes to answer (drawn anew each time); 0 answers at once, as no person does."""
    gold: str = "tutelage.data.worlds:gold"
    """What the raters value, as module:function of prompts and completions."""
    seed: int = 0
    """Seed of the raters."""

    def __post_init__(self) -> None:
        a_seed(self)


@dataclass(frozen=True, kw_only=True)
class Judge(CollectSettings):
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


SUBCOMMANDS: Mapping[str, type[CollectSettings]] = {
    "init": Init,
    "serve": Serve,
    "invite": Invite,
    "status": Status,
    "export": Export,
    "import": Import,
    "simulate": Simulate,
    "judge": Judge,
    "next": Next,
    "payments": Payments,
    "forget": Forget,
    **SETTINGS,
    "token": Token,
    "webhook": Webhook,
    "backup": Backup,
    "restore": Restore,
}
"""The classes of settings of the subcommands, by their names."""
