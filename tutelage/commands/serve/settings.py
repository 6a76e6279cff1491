"""Settings of serving a model."""

from dataclasses import dataclass

from tutelage.base import config
from tutelage.base.config.bounds import at_least
from tutelage.base.errors import TutelageError

KEY = "TUTELAGE_SERVE_KEY"
"""Environment variable that holds the API key of a server: a setting would be seen in the list of processes."""
PARENT = "TUTELAGE_SERVE_PARENT"
"""Environment variable that lets a server end when its standard input does: set by a process that holds the other end,
so that the server ends with that process."""
PORT = 8000
"""Port of `tutelage serve` and `tutelage collect serve` where none is given."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Serve a model over HTTP in the formats of OpenAI and vLLM: chat and text completions with streaming, token ids
    and log-probabilities. For small work on one machine: judges, evaluation harnesses, rollouts of a second process.
    Where TUTELAGE_SERVE_KEY is set, requests must bring it as a bearer token."""

    model: config.Model
    name: str = ""
    """What requests call the model; if omitted, its folder or name on the hub."""
    host: str = "127.0.0.1"
    """Address to listen on. 0.0.0.0 lets other machines ask; set TUTELAGE_SERVE_KEY then."""
    port: int = PORT
    """Port to listen on; 0 takes a free one."""
    rows: int = 64
    """Answers that are computed at the same time; other requests wait."""
    queue: int = 1024
    """Prompts that may wait; further requests are refused with status 503."""
    max_new_tokens: int = 2048
    """Longest answer in tokens that a request may ask for."""
    max_body: int = 4 << 20
    """Longest body of a request in bytes."""
    weight_updates: bool = False
    """Let clients replace the weights from folders of this machine, by vLLM's /collective_rpc and
    /v1/load_lora_adapter: for a trainer whose rollouts are sampled here."""

    def __post_init__(self) -> None:
        at_least(self, port=0, rows=1, queue=1, max_new_tokens=1, max_body=1024)
        if self.port > 65535:
            raise TutelageError(f"--port is {self.port}; ports go up to 65535.")
