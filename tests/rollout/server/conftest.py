"""A tiny model, and servers that have it."""

from contextlib import ExitStack

import pytest
from served import serving
from vllm_stub import VllmStub

from tutelage.rollout.server.rollout_servers import connect


@pytest.fixture
def serve(tiny_model):
    """`serve(stub, ...)`: (the servers as they are found, what each was asked). A stub may be a dict of its faults."""
    with ExitStack() as stack:

        def found(*stubs, retries=0):
            made = [stub if isinstance(stub, VllmStub) else VllmStub(tiny_model("llama"), **stub) for stub in stubs]
            served = [stack.enter_context(serving(stub)) for stub in made]
            urls = [one.url.removesuffix("/v1") for one in served]
            return connect(urls, retries=retries, wait=0.0), served

        yield found
