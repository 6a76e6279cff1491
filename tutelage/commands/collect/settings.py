"""Settings of `tutelage collect`: its subcommands, and the settings of those whose modules are slow to import."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tutelage.base import config
from tutelage.base.config.bases import EngineSettings
from tutelage.base.config.bounds import a_seed, at_least
from tutelage.base.errors import TutelageError
from tutelage.commands.collect.connections import Token, Webhook
from tutelage.commands.collect.erasure import Forget
from tutelage.commands.collect.invites import Invite
from tutelage.commands.collect.subcommands import SETTINGS
from tutelage.commands.collect.transfer import Backup, Export, Import, Restore
from tutelage.commands.serve.settings import PORT
from tutelage.commands.study import CollectSettings
from tutelage.people.settings import Unranked


@dataclass(frozen=True, kw_only=True)
class Init(CollectSettings, EngineSettings):
    """Create a study or add questions to one: from existing pairs or traces, from the output of `tutelage sample`, or
    by sampling. With --live raters talk to two models, and every turn is a question."""

    from_pairs: str = ""
    """Existing pairs: a file or hub data set of preferences, also of traces of several messages; their labels are
    ignored."""
    from_traces: str = ""
    """With --kind steps, responses whose steps are judged: a file or hub data set of conversations (messages, with
    calls of tools and their results), of completions in steps, or of texts, whose steps blank lines separate."""
    from_sample: Path | None = None
    """Output folder of `tutelage sample --pairs`."""
    prompts: str = ""
    """Prompts to sample completions for: a file or hub data set. With --live: suggested first messages."""
    model: str = ""
    """Model to sample from: a folder or hub name; with --live also the address of an endpoint, such as
    http://localhost:8000/v1#MODEL (#MODEL may be omitted if it serves only one)."""
    against: str = ""
    """A second model; every pair then has one completion of each. With --live, by default the same as --model."""
    live: bool = False
    """Let raters talk to both models: they write, choose the better of two responses, and the conversation continues
    from there. If repeated on the same study, new models or settings apply from the next message."""
    turns: int = 4
    """Maximum number of rater messages in a live conversation."""
    pairs: int = 1
    """Questions per prompt when sampling: pairs of completions or, with --answers, sets of them."""
    kind: str = "pair"
    """Task of the raters: pair (choose the better of two responses), steps (judge the steps of one), or another kind of
    `tutelage.people.kinds`."""
    answers: int | None = None
    """Responses per question, if the kind takes more than two (up to 6). [default: 2]"""
    sampling: config.Sampling = field(default_factory=config.Sampling)
    seed: int = 0
    """Random seed of sampling."""
    limit: int | None = None
    """Maximum number of questions from --from-pairs or --from-sample, which begin with one for each prompt; with
    --prompts, of prompts."""
    round: int = 1
    """Round of the questions."""
    images: Path | None = None
    """Folder of the images that the questions name by paths; images outside of it are never read. [default: the folder
    of each file of questions]"""
    golds: str = ""
    """Attention checks with a known answer, mixed in with the questions: preferences that are beyond doubt; with --kind
    steps, completions in steps with labels."""
    training: str = ""
    """Practice questions before the real ones: preferences, optionally with a column `explanation`."""
    language: tuple[str, ...] = ()
    """Languages of the pages: en, de, es, zh, ar. The first is the default; with several, each rater gets the browser's
    preferred one, and can change it. [default: en]"""
    question: str = ""
    """Question that raters are asked. [default: one for --kind, in the rater's language]"""
    criteria: tuple[str, ...] = ()
    """Additional criteria below the overall verdict, for example: accurate clear engaging."""
    scale: int | None = None
    """Steps of the scale. For pairs, the steps to each side of the bar: 3 for seven points (the default) to 1 for
    better or worse only. For --kind steps, 2 asks for the first wrong step (the default), 3 for -1, 0 or +1 for
    each."""
    guidelines: Path | None = None
    """Markdown file with guidelines, which raters read first and can open at any time."""
    corrections: bool = False
    """Let raters write a better response, by editing one or from scratch."""
    spans: tuple[str, ...] = ()
    """Let raters mark wrong words, with these categories, for example: fact reasoning tone."""
    overlap: int | None = None
    """Raters per question. [default: 2; with --live 1, the rater in the conversation]"""

    def __post_init__(self) -> None:
        from tutelage.people.languages import check_languages

        a_seed(self)
        at_least(self, turns=1, pairs=1, limit=1)
        if self.language:
            check_languages(self.language)
        if self.live:
            self._check_live()
            return
        if self.turns != 4:
            raise TutelageError("--turns applies to live conversations: give --live too.")
        if self.images is not None and not (self.from_pairs or self.from_sample or self.golds or self.training):
            raise TutelageError("--images is about the files of questions: give --from-pairs or --from-sample too.")
        sources = [bool(self.from_pairs), bool(self.from_traces), self.from_sample is not None, bool(self.prompts)]
        if sum(sources) > 1:
            raise TutelageError(
                "Questions come from one place: give --from-pairs, --from-traces, --from-sample or --prompts."
            )
        if bool(self.prompts) != bool(self.model):
            raise TutelageError("Sampling takes both --prompts and --model.")
        if self.against and not self.model:
            raise TutelageError("--against needs --model to be compared with.")
        self._check_kind()

    def _check_live(self) -> None:
        from tutelage.people.kinds import DEFAULT

        if not self.model:
            raise TutelageError("--live needs --model, and usually --against: the models that raters talk to.")
        flags = {
            "--from-pairs": self.from_pairs,
            "--from-sample": self.from_sample,
            "--answers": self.answers,
            "--kind": self.kind != DEFAULT.name,
            "--pairs": self.pairs != 1,
        }
        other = next((name for name, value in flags.items() if value), None)
        if other is not None:
            raise TutelageError(
                f"{other} cannot be used with --live: every turn of a conversation is a pair from the models."
            )

    def _check_kind(self) -> None:
        from tutelage.people.kinds import find_kind

        traits = find_kind(self.kind).traits
        others = bool(self.from_pairs or self.from_sample or self.prompts)
        if (self.from_traces and not traits.steps) or (others and traits.steps):
            raise TutelageError(
                f"--kind is {self.kind}: the questions of --kind steps come from --from-traces, those of other kinds "
                "from --from-pairs, --from-sample or --prompts."
            )
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
    """Serve one study to browsers until ctrl-C, or several, each below /s/NAME."""

    more: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[STUDY ...]")] = ()
    """More studies. For a folder of studies, all studies in it."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 accepts connections from other machines."""
    port: int = PORT
    """Port to listen on; 0 for a free one."""
    public_url: str = ""
    """Public address of the site, if behind a proxy: https://rate.example.org, or https://example.org/rating."""
    owner: str = ""
    """Name of the owner whom the printed link signs in, created if absent. [default: the first owner]"""
    oidc_issuer: str = ""
    """OpenID provider at which owners and reviewers sign in: https://id.example.org."""
    oidc_client: str = ""
    """Client id of this server at the provider; the secret is read from TUTELAGE_OIDC_SECRET, or from the file in
    TUTELAGE_OIDC_SECRET_FILE. The provider redirects to PUBLIC-URL/sign-in/callback, whether one study is served or
    several."""
    proxy_user_header: str = ""
    """Header in which a proxy passes the signed-in user, such as X-Forwarded-User; needs --trusted-proxy."""
    trusted_proxy: tuple[str, ...] = ()
    """Addresses or networks of the proxy in front. From any other, the header of --proxy-user-header is ignored, and
    so is X-Forwarded-For, which names the client whose wrong links are limited; a proxy on this machine may always set
    the latter."""
    owners: tuple[str, ...] = ()
    """Users who sign in as owners: e-mail addresses, domains (@example.org), or user names of the proxy."""
    reviewers: tuple[str, ...] = ()
    """Users who sign in as reviewers, in the same forms."""
    webhook: str = ""
    """Address that receives new inbox entries as JSON, at most once a minute; signed with TUTELAGE_WEBHOOK_SECRET, if
    set."""
    mail_to: str = ""
    """E-mail address that receives new inbox entries; needs --smtp."""
    mail_from: str = ""
    """Sender of these mails, and of personal links that owners mail from the page of a rater, which needs --smtp too.
    [default: the address of --mail-to]"""
    mail_language: str = ""
    """Language of these mails: en, de, es, zh or ar; by default that of the study."""
    engine: config.EngineName = "auto"
    """Engine for models of live conversations that are folders: plain, the modules of transformers; cpu, kernels
    compiled for this CPU; gpu, compiled for an NVIDIA GPU; auto: cpu on a CPU, gpu on an NVIDIA GPU, else plain."""
    tools: tuple[str, ...] = ()
    """Tools that the models of live conversations call: calculator, python, search:FILE, or module:function."""
    smtp: str = ""
    """Mail server: smtp://user@mail.example.org:587; its password is read from TUTELAGE_SMTP_PASSWORD."""

    def __post_init__(self) -> None:
        if bool(self.mail_to or self.mail_from) != bool(self.smtp):
            raise TutelageError(
                "Mail needs --smtp, the server, and --mail-to, which receives inbox entries, or --mail-from, the "
                "sender of raters' links."
            )
        if self.mail_language and not self.mail_to:
            raise TutelageError("--mail-language applies to mails to --mail-to; give that too.")
        if bool(self.oidc_issuer) != bool(self.oidc_client):
            raise TutelageError("Signing in at a provider needs both --oidc-issuer and --oidc-client.")
        if self.proxy_user_header and not self.trusted_proxy:
            raise TutelageError("Signing in by a proxy needs both --proxy-user-header and --trusted-proxy.")
        if self.trusted_proxy and not (self.proxy_user_header or self.public_url):
            raise TutelageError("--trusted-proxy is a proxy in front: give --public-url or --proxy-user-header too.")
        if bool(self.owners or self.reviewers) != bool(self.oidc_issuer or self.proxy_user_header):
            raise TutelageError("Signing in needs --owners or --reviewers, and --oidc-issuer or --proxy-user-header.")
        if self.more and self.name:
            raise TutelageError("--name selects one study of a file; omit it when serving several.")


@dataclass(frozen=True, kw_only=True)
class Status(CollectSettings):
    """Print the progress of the study, the agreement of its raters, and conspicuous raters."""


@dataclass(frozen=True, kw_only=True)
class Payments(CollectSettings):
    """Write time and counts of every visit as CSV, for payment. It contains names and platform identifiers of raters:
    keep it apart from exports."""

    out: Path | None = None
    """File to write; it must not exist. By default the table is printed."""


@dataclass(frozen=True, kw_only=True)
class Simulate(CollectSettings):
    """Let simulated raters answer over HTTP, as browsers would."""

    url: str = ""
    """Server to use; by default a temporary one is started."""
    raters: int = 6
    """Number of raters; in every dozen or fewer, one is careless, one adversarial, the others ordinary."""
    answers: int | None = None
    """Maximum number of answers per rater."""
    think: float = 0.0
    """Mean seconds until a rater answers (exponentially distributed); 0 for no delay."""
    gold: str = ""
    """Utility of the raters, as module:function of prompts and completions. By default tutelage.data.worlds:gold if
    every question is about a topic of the embedded world, else tutelage.data.worlds:clarity: plain words, short
    sentences, a friendly tone, an end. With --kind steps it is needed, and judges steps: positive for a right one."""
    seed: int = 0
    """Random seed of the raters."""

    def __post_init__(self) -> None:
        a_seed(self)
        at_least(self, raters=1, answers=1, think=0)


@dataclass(frozen=True, kw_only=True)
class Judge(CollectSettings, EngineSettings):
    """Add a model as a rater, counted apart from people: a language model behind an OpenAI-compatible endpoint, asked
    about both orders of each pair or about each criterion of a rubric, or a reward model."""

    rater: str = ""
    """Name of the rater, by default that of the model. A name belongs to one judge: another model or prompt needs
    another name."""
    endpoint: str = ""
    """Address of the endpoint that serves --model, such as http://localhost:8000/v1; if it needs a key, it is read from
    TUTELAGE_ENDPOINT_KEY."""
    model: str = ""
    """Name of the model at the endpoint."""
    temperature: float = 0.0
    """Sampling temperature of the model at the endpoint."""
    template: Path | None = None
    """Prompt file that replaces the built-in prompt: {question}, {guidelines}, {conversation}, {first} and {second} are
    filled in, and the reply must end with [[A]], [[B]] or [[C]]; about criteria, {guidelines}, {conversation},
    {response} and {criterion}, and [[MET]] or [[UNMET]]."""
    judge: Path | None = None
    """File of a judge, as for --reward judge:FILE and as `tutelage judge align` writes it, instead of an endpoint: it
    has endpoint, question, rubric and prices."""
    reward: str = ""
    """Reward model (folder) or module:function of prompts and answers, instead of an endpoint."""
    tie: float = 0.0
    """Maximum score difference of a tie; for --reward, and a --judge that rates."""
    step: float = 1.0
    """Score difference per step of strength."""
    limit: int | None = None
    """Maximum number of questions, which bounds the requests; the next call continues."""

    def __post_init__(self) -> None:
        at_least(self, limit=1)
        if bool(self.endpoint) + bool(self.reward) + (self.judge is not None) != 1:
            raise TutelageError("A judge is either a model behind --endpoint, the --judge of a file or a --reward.")
        if self.judge is not None and (self.model or self.template or self.temperature):
            raise TutelageError("--model, --template and --temperature are in the file of --judge: change them there.")
        if self.endpoint and not self.model:
            raise TutelageError("--endpoint needs --model, the name by which it serves the judge.")
        if self.step <= 0 or self.tie < 0 or self.temperature < 0:
            raise TutelageError("--step must be above 0, --tie and --temperature at least 0.")


@dataclass(frozen=True, kw_only=True)
class Next(CollectSettings, EngineSettings):
    """Set the order of new questions. At least 30 % of them are always chosen at random, so that the study keeps an
    unbiased sample."""

    by: Literal[Unranked, "uncertainty", "models"] = "finish_first"
    """finish_first: started questions, then new ones at random; random: any open one at random; uncertainty: new ones
    whose responses --reward scores similarly; models: new ones between --new and --old. All but random prefer the
    newest round."""
    reward: tuple[str, ...] = ()
    """Reward models (folders) or module:function: one is uncertain about pairs with close scores, several about pairs
    on which they disagree."""
    new: str = ""
    """The newer model, as named in the study; by default the policy of the last round."""
    old: str = ""
    """The older model; by default any other than the newer one."""

    def __post_init__(self) -> None:
        if (self.by == "uncertainty") != bool(self.reward):
            raise TutelageError("--by uncertainty needs --reward; the other orders do not use it.")
        if (self.new or self.old) and self.by != "models":
            raise TutelageError("--new and --old need --by models.")


RUNNERS: Mapping[str, tuple[type[CollectSettings], str]] = {
    "init": (Init, "study_creation:make"),
    "serve": (Serve, "collect.server:serve"),
    "invite": (Invite, "collect.invites:invite"),
    "status": (Status, "collect.status_table:tell"),
    "export": (Export, "collect.transfer:write"),
    "import": (Import, "collect.transfer:read"),
    "simulate": (Simulate, "collect.crowd:simulate"),
    "judge": (Judge, "collect.judge:judge"),
    "next": (Next, "collect.judge:choose"),
    "payments": (Payments, "collect.status_table:write_payments"),
    "forget": (Forget, "collect.erasure:forget_raters"),
    **{name: (kind, "collect.subcommands:amend") for name, kind in SETTINGS.items()},
    "token": (Token, "collect.connections:manage_tokens"),
    "webhook": (Webhook, "collect.connections:manage_webhooks"),
    "backup": (Backup, "collect.transfer:back_up"),
    "restore": (Restore, "collect.transfer:restore"),
}
"""Settings class and function of each subcommand, as module:function of `tutelage.commands`; imported when called."""
SUBCOMMANDS: Mapping[str, type[CollectSettings]] = {name: kind for name, (kind, _) in RUNNERS.items()}


def main(settings: CollectSettings) -> int:
    """Run the subcommand of these settings."""
    place = next(place for kind, place in RUNNERS.values() if type(settings) is kind)
    module, _, function = place.partition(":")
    run: Callable[[CollectSettings], int] = getattr(import_module(f"tutelage.commands.{module}"), function)
    return run(settings)
