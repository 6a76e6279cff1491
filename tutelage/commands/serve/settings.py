"""Settings of serving a model."""

from dataclasses import dataclass, field

from tutelage.base import config
from tutelage.base.config.bounds import above_zero, at_least
from tutelage.base.config.mapping import LATER
from tutelage.base.errors import TutelageError

KEY = "TUTELAGE_SERVE_KEY"
"""Environment variable of the API key of a server: a setting would be visible in the process list."""
PARENT = "TUTELAGE_SERVE_PARENT"
"""Environment variable that makes a server end when its standard input closes. A parent process that holds the other
end sets it, so that the server ends with that process."""
PORT = 8000
"""Default port of `tutelage serve` and `tutelage collect serve`."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Serve a model over HTTP in the formats of OpenAI and vLLM: chat and text completions with streaming, token ids
    and log-probabilities. Intended for small workloads on one machine: judges, evaluation harnesses, rollouts of a
    second process. If TUTELAGE_SERVE_KEY is set, requests need it as a bearer token."""

    model: config.Model
    name: str = ""
    """Model name in requests; by default its folder or hub name."""
    host: str = "127.0.0.1"
    """Address to listen on. 0.0.0.0 accepts connections from other machines; then set TUTELAGE_SERVE_KEY."""
    port: int = PORT
    """Port to listen on; 0 for a free one."""
    rows: int = 64
    """Maximum number of concurrent completions; other requests wait."""
    queue: int = 1024
    """Maximum number of waiting prompts; further requests are refused with status 503."""
    max_new_tokens: int = 2048
    """Maximum tokens of a completion that a request may ask for."""
    max_body: int = 4 << 20
    """Maximum size of a request body in bytes."""
    weight_updates: bool = False
    """Let clients replace the weights from folders of this machine, by vLLM's /collective_rpc and
    /v1/load_lora_adapter: for a trainer that samples rollouts here."""
    feedback: str = ""
    """Study that takes feedback of users: its database file, the folder that contains study.sqlite, or a postgresql://
    URL. The server then has POST /v1/feedback and, at its address, a page to chat on. Only completions whose user
    agreed are kept."""
    study: str = ""
    """Name of the study, if the database of --feedback holds several."""
    share: float = 1.0
    """Share of the completions that are kept for feedback."""
    days: float = 7.0
    """Days for which a completion can be given feedback on; what no feedback refers to is deleted then."""
    per_minute: int = 60
    """Maximum number of requests of a user in a minute, with --feedback; further ones are refused with status 429."""
    against: str = ""
    """Candidate for a split test: a second model, which answers the users in --split. Where it fails, --model does."""
    split: float = 0.5
    """Share of the users whom --against answers."""
    against_timeout: float = field(default=120.0, metadata=LATER)
    """Seconds that --against has for an answer, or to begin one that is streamed; after that --model answers, and it
    counts as an error of --against."""

    def __post_init__(self) -> None:
        at_least(self, port=0, rows=1, queue=1, max_new_tokens=1, max_body=1024, per_minute=1)
        if not self.feedback and (self.study, self.share, self.days, self.per_minute) != ("", 1.0, 7.0, 60):
            raise TutelageError("--study, --share, --days and --per-minute are about --feedback; give that too.")
        if self.against and not self.feedback:
            raise TutelageError("--against needs --feedback STUDY, which keeps what users say of both models.")
        if self.against and self.weight_updates:
            raise TutelageError("--against compares two models that stay the same; omit --weight-updates.")
        if not self.against and self.split != 0.5:
            raise TutelageError("--split is about --against; give that too.")
        if not self.against and self.against_timeout != 120.0:
            raise TutelageError("--against-timeout is about --against; give that too.")
        above_zero(self, "against_timeout")
        if not 0 < self.share <= 1:
            raise TutelageError(f"--share is {self.share:g}; it must be above 0 and at most 1.")
        if not 0 < self.split < 1:
            raise TutelageError(f"--split is {self.split:g}; it must be above 0 and below 1.")
        if not 0 < self.days <= 3650:
            raise TutelageError(f"--days is {self.days:g}; it must be above 0 and at most 3,650.")
        if self.port > 65535:
            raise TutelageError(f"--port is {self.port}; ports go up to 65535.")
