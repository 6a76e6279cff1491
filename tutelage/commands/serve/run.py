"""Serving of a model over HTTP."""

import os

from tutelage.base.errors import TutelageError
from tutelage.commands.calls import workflow
from tutelage.commands.loading import load_policy
from tutelage.commands.runs import remark
from tutelage.commands.serve.settings import KEY, ServeSettings
from tutelage.rollout.serving.http_requests import is_local
from tutelage.rollout.serving.policy_server import PolicyServer
from tutelage.rollout.serving.service import Service


@workflow(ServeSettings)
def serve(settings: ServeSettings) -> PolicyServer:
    """Return a server of a model, which already listens, and responds once it is entered or run.

        with tt.serve(model="runs/ppo/model", port=0) as server:
            print(server.url)

    Raises:
        TutelageError: the model cannot be loaded, or the port cannot be used.
    """
    key = os.environ.get(KEY, "")
    if not (key.isascii() and key.isprintable()):
        raise TutelageError(f"{KEY} has characters that are not allowed in an HTTP header, such as a line break.")
    if not key and not is_local(settings.host):
        remark(
            f"The server listens on {settings.host} without a key: anyone on its network can use the model. Set "
            f"{KEY}, or omit --host."
        )
    policy = load_policy(settings.model)
    service = Service(
        policy,
        name=settings.name or settings.model.path,
        path=settings.model.path,
        rows=settings.rows,
        queue=settings.queue,
        tokens=settings.max_new_tokens,
    )
    try:
        return PolicyServer(
            service,
            host=settings.host,
            port=settings.port,
            key=key,
            body=settings.max_body,
            updates=settings.weight_updates,
        )
    except BaseException:
        service.close()
        raise
