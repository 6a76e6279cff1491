"""Detection of inference servers, and refusal of servers that cannot produce rollouts."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import KEY
from tutelage.data.transport import HttpRefusal, InvalidAddress, Transport, check_key
from tutelage.rollout.server.api import Api, Connection, Handover
from tutelage.rollout.server.sglang import SglangApi, SglangDiskHandover
from tutelage.rollout.server.vllm import (
    COMPLETIONS,
    GENERATE,
    CompletionsApi,
    DiskHandover,
    GenerateApi,
    LoraHandover,
    has_route,
)

TIMEOUT = 1800.0
"""Timeout of a request in seconds without a byte: a long completion arrives as a whole."""


@dataclass(frozen=True)
class ServerKind:
    """Capabilities of a kind of server: its weight transfers, and its flags for a longer context and for the
    log-probabilities of sampling ("" if it has none)."""

    name: str
    handovers: tuple[Handover, ...] = ()
    context_flag: str = ""
    logprobs_flag: str = ""


VLLM = ServerKind("vLLM", (LoraHandover(), DiskHandover()), "--max-model-len", "--logprobs-mode processed_logprobs")
SGLANG_LORA = LoraHandover(
    needs="--enable-lora, --max-lora-rank and --lora-target-modules", prefix="", detectable=False
)
SGLANG = ServerKind("SGLang", (SGLANG_LORA, SglangDiskHandover()), "--context-length")
TUTELAGE = ServerKind(
    "tutelage",
    (LoraHandover(needs="--weight-updates"), DiskHandover(needs="--weight-updates", after_failure="", pause="wait")),
)
OTHER = ServerKind("a server of completions")


@dataclass(frozen=True)
class RolloutServer:
    """Detected server: its kind, its API, its release, the model it serves, the place that the model was loaded from,
    and its context in tokens (None if unreported)."""

    connection: Connection
    kind: ServerKind
    api: Api
    release: str
    model: str
    source: str
    context: int | None = None

    @property
    def url(self) -> str:
        """Address of the server."""
        return self.connection.url


def addresses(rollouts: str) -> tuple[str, ...]:
    """Addresses in `--rollouts`, without a trailing `/v1`. Raises TutelageError for invalid and for duplicate
    addresses."""
    urls = tuple(url.strip().rstrip("/").removesuffix("/v1") for url in rollouts.split(","))
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise _no_address(url)
        if urls.count(url) > 1:
            raise TutelageError(f"--rollouts names the server {url} twice.")
    return urls


def connect(urls: Sequence[str], *, retries: int = 3, wait: float = 1.0) -> list[RolloutServer]:
    """Connect to servers, all of one kind and release, with the key TUTELAGE_ENDPOINT_KEY.

    Raises TutelageError for an address without a server, for a server without token ids, and for servers that
    differ.
    """
    key = os.environ.get(KEY, "")
    check_key(key, "the rollout servers")
    servers = [_found(Connection(url, Transport(f"The server {url}", key, TIMEOUT, retries, wait))) for url in urls]
    for other in servers[1:]:
        for what, here, there in (
            ("runs", servers[0].release, other.release),
            ("serves", servers[0].model, other.model),
        ):
            if here != there:
                raise TutelageError(
                    f"The server {servers[0].url} {what} {here} and {other.url} {there}: rollouts of one run come from "
                    "one release and one model. Start the same on both, or leave one of them out of --rollouts."
                )
    return servers


def _found(connection: Connection) -> RolloutServer:
    try:
        kind, release = _kind(connection)
        base = base_card(connection)
    except InvalidAddress as error:
        raise _no_address(connection.url) from error
    except HttpRefusal as error:
        raise TutelageError(f"{error} --rollouts takes the addresses of vLLM, SGLang or tutelage serve.") from error
    name = str(base["id"])
    source = str(base.get("root") or name)
    return RolloutServer(connection, kind, _api(connection, kind), release, name, source, base.get("max_model_len"))


def base_card(connection: Connection) -> dict[str, Any]:
    """What a server says of its model, not of its adapters. Raises TutelageError if it lists none."""
    models = connection.get("/v1/models")
    cards = models.get("data") if isinstance(models, dict) else None
    for card in cards if isinstance(cards, list) else ():
        if isinstance(card, dict) and "id" in card and not card.get("parent"):
            return card
    raise TutelageError(f"The server {connection.url} lists no model at /v1/models.")


def _kind(connection: Connection) -> tuple[ServerKind, str]:
    """Kind of a server, and its release."""
    for path, kind in (("/version", VLLM), ("/get_server_info", SGLANG)):
        try:
            about = connection.get(path)
        except HttpRefusal as refusal:
            if refusal.status not in (404, 405):
                raise
        else:
            release = str(about.get("version", "of unknown release"))
            if release.startswith(f"{TUTELAGE.name} "):
                return TUTELAGE, release
            return kind, release if " " in release else f"{kind.name} {release}"  # others give a name too
    return OTHER, OTHER.name


def _api(connection: Connection, kind: ServerKind) -> Api:
    if kind is SGLANG:
        return SglangApi()
    if has_route(connection, GENERATE):
        return GenerateApi()
    if has_route(connection, COMPLETIONS):
        return CompletionsApi()
    raise TutelageError(
        f"The server {connection.url} has neither {GENERATE} nor {COMPLETIONS}, so that it cannot be asked with token "
        "ids. Start vLLM with --enable-scale-out, or SGLang."
    )


def _no_address(url: str) -> TutelageError:
    return TutelageError(
        f"{url!r} is no address of a server: give --rollouts as http://localhost:8000, several joined by commas."
    )
