"""A served tiny model for the tests of what clients see."""

import shutil

import httpx
import pytest
from call_templates import TAGGED

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


@pytest.fixture(scope="module")
def tools_client(tiny_model, tmp_path_factory):
    """A client of a served model whose chat template shows tools."""
    folder = tmp_path_factory.mktemp("tools") / "model"
    shutil.copytree(tiny_model("qwen3", max_position_embeddings=400), folder)
    (folder / "chat_template.jinja").write_text(TAGGED)
    with (
        tt.serve(model=str(folder), port=0, name="tiny", max_new_tokens=80, max_body=20_000) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        yield client
