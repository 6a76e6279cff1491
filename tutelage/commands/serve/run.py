"""Serving of a model over HTTP."""

import os
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

from tutelage.base.errors import TutelageError
from tutelage.commands.calls import workflow
from tutelage.commands.loading import load_policy
from tutelage.commands.runs import remark
from tutelage.commands.serve.settings import KEY, ServeSettings
from tutelage.rollout.serving.http_requests import is_local
from tutelage.rollout.serving.policy_server import PolicyServer
from tutelage.rollout.serving.service import Service
from tutelage.stats.split_test import Trial

if TYPE_CHECKING:
    from tutelage.commands.serve.study_usage import StudyUsage


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
    with ExitStack() as stack:  # closes what was opened if the rest fails
        usage = stack.enter_context(closing(_usage(settings))) if settings.feedback else None
        service = stack.enter_context(closing(_service(settings, settings.model.path)))
        candidate = stack.enter_context(closing(_service(settings, settings.against))) if settings.against else None
        served = PolicyServer(
            service,
            host=settings.host,
            port=settings.port,
            key=key,
            body=settings.max_body,
            updates=settings.weight_updates,
            candidate=candidate,
            patience=settings.against_timeout,
            usage=usage,
        )
        stack.pop_all()
        return served


def _service(settings: ServeSettings, path: str) -> Service:
    """The model at the path, under the name of the present one."""
    return Service(
        load_policy(replace(settings.model, path=path)),
        name=settings.name or settings.model.path,
        path=path,
        rows=settings.rows,
        queue=settings.queue,
        tokens=settings.max_new_tokens,
    )


def _usage(settings: ServeSettings) -> "StudyUsage":
    from tutelage.commands.serve.study_usage import StudyUsage, open_use
    from tutelage.commands.split_evidence import weights_name

    trial = None
    if settings.against:
        trial = Trial(weights_name(settings.against), weights_name(settings.model.path), settings.split)

    store, study = open_use(settings.feedback, settings.study)
    return StudyUsage(
        store,
        study,
        share=settings.share,
        days=settings.days,
        per_minute=settings.per_minute,
        trial=trial,
        model=settings.name or settings.model.path,
    )
