"""Routes that change the weights, compatible with vLLM, for trainers that sample rollouts from this server."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tutelage.rollout.serving.http_requests import read_json
from tutelage.rollout.serving.jobs import Version
from tutelage.rollout.serving.protocol.request_fields import Flag, RequestError, Text, read_fields, refusal
from tutelage.rollout.serving.service import Service

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
S = TypeVar("S", bound=Struct)


class ReloadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `reload_weights`."""

    weights_path: Text = ""


class Reload(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `/collective_rpc`."""

    method: Text = ""
    kwargs: ReloadArguments = ReloadArguments()
    args: Any = None
    timeout: Any = None


class NewVersion(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `/update_weight_version`."""

    new_version: Annotated[Version, Meta(description="a text or a whole number")]


class LoadAdapter(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `/v1/load_lora_adapter`."""

    lora_name: Text = ""
    lora_path: Text = ""
    load_inplace: Flag = False


class UnloadAdapter(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `/v1/unload_lora_adapter`."""

    lora_name: Text = ""
    lora_int_id: Any = None


def update_routes(service: Service, body: int) -> list[Route]:
    """Create the routes. `body` limits the bytes of a body."""
    updates = _Updates(service, body)
    posts: dict[str, Endpoint] = {
        "/pause": updates.pause,
        "/resume": updates.resume,
        "/collective_rpc": updates.reload,
        "/update_weight_version": updates.name_version,
        "/v1/load_lora_adapter": updates.load_adapter,
        "/v1/unload_lora_adapter": updates.unload_adapter,
    }
    gets: dict[str, Endpoint] = {"/is_paused": updates.is_paused, "/weight_info": updates.info}
    return [
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()),
        *(Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()),
    ]


class _Updates:
    """Endpoints. Changes of weights wait for running completions, paused or not."""

    def __init__(self, service: Service, body: int) -> None:
        self.service, self.body = service, body

    async def pause(self, request: Request) -> Response:
        """Stop starting requests until /resume. `?mode=wait` finishes running ones; `abort` stops all."""
        await self.service.pause(request.query_params.get("mode", "abort"))
        return JSONResponse({"status": "paused"})

    async def resume(self, request: Request) -> Response:
        """Resume after /pause."""
        self.service.worker.resume()
        return JSONResponse({"status": "resumed"})

    async def is_paused(self, request: Request) -> Response:
        """Whether the server is paused."""
        return JSONResponse({"is_paused": self.service.worker.paused})

    async def reload(self, request: Request) -> Response:
        """`{"method": "reload_weights", "kwargs": {"weights_path": DIR}}`: load weights from a folder."""
        fields = await self._read(Reload, request)
        if fields.method != "reload_weights":
            raise refusal("method", f"is {fields.method!r}; this server has reload_weights")
        path = fields.kwargs.weights_path
        if not path:
            raise refusal("kwargs.weights_path", "is missing: give the folder of a model")
        await self.service.change(lambda weights: weights.reload(path))
        return JSONResponse({"results": [None]})

    async def name_version(self, request: Request) -> Response:
        """`{"new_version": NAME}`: set the version of the weights."""
        name = (await self._read(NewVersion, request)).new_version
        await self.service.change(lambda weights: setattr(weights, "version", name))
        return JSONResponse({"success": True, "new_version": name})

    async def info(self, request: Request) -> Response:
        """Version of the weights."""
        return JSONResponse({"weight_version": self.service.worker.weights.version})

    async def load_adapter(self, request: Request) -> Response:
        """`{"lora_name", "lora_path", "load_inplace"}`: load a LoRA adapter, which requests name as their model."""
        fields = await self._read(LoadAdapter, request)
        name, path, model = fields.lora_name, fields.lora_path, self.service.model
        if not name or not path:
            raise RequestError("Both lora_name and lora_path must be given.", param="lora_name")
        if name == model.name:
            raise refusal("lora_name", f"is {name!r}, the name of the model itself")
        if name in model.adapters and not fields.load_inplace:
            raise refusal("lora_name", f"is {name!r}, which is loaded: set load_inplace to replace it")
        await self.service.change(lambda weights: weights.load_adapter(name, path))
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload_adapter(self, request: Request) -> Response:
        """`{"lora_name"}`: unload an adapter."""
        name = (await self._read(UnloadAdapter, request)).lora_name
        await self.service.change(lambda weights: weights.unload_adapter(name))
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    async def _read(self, kind: type[S], request: Request) -> S:
        return read_fields(kind, await read_json(request, self.body))
