"""A served tiny model for the tests of what clients see."""

import httpx
import pytest

import tutelage as tt


@pytest.fixture(scope="module")
def served(tiny_model):
    """A server of a model without a chat template, whose weights may be changed."""
    with tt.serve(
        model=tiny_model("llama"), port=0, name="tiny", max_new_tokens=80, max_body=20_000, weight_updates=True
    ) as server:
        yield server


@pytest.fixture(scope="module")
def client(served):
    with httpx.Client(base_url=served.url, timeout=60) as client:
        yield client
