"""Names of models: addresses of endpoints, with and without the model that they serve."""

import json
from typing import Any

import pytest
from scripted_chat import finished
from served import serving

from tutelage.base.errors import TutelageError
from tutelage.data.records import user
from tutelage.people.chat_models import EndpointModel, endpoint_of, only_endpoints


def test_an_address_names_the_endpoint_and_the_model() -> None:
    endpoint = endpoint_of("http://host:8000/v1#org/model-7b", "sesame")
    assert (endpoint.url, endpoint.model, endpoint.key) == ("http://host:8000/v1", "org/model-7b", "sesame")
    assert endpoint_of("https://host/v1").model == ""


def reply(model: EndpointModel) -> str:
    async def scene() -> str:
        return "".join([piece.text async for piece in model.pieces(user("Hi"))])

    return finished(scene())


def test_the_only_model_of_an_endpoint_need_not_be_named() -> None:
    chunk = {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}

    def answer(body: dict[str, Any], number: int) -> Any:
        return {"data": [{"id": "the-one"}]} if body["path"] == "/v1/models" else f"data: {json.dumps(chunk)}\n\n"

    with serving(answer) as served:
        assert reply(EndpointModel(endpoint_of(served.url))) == "Hello"
    assert [asked.get("model") for asked in served.asked] == [None, "the-one"]


@pytest.mark.parametrize(
    ("listed", "words"),
    [({"data": [{"id": "a"}, {"id": "b"}]}, "serves 2 models \\(a, b\\)"), ({"odd": 1}, "does not list models")],
)
def test_where_there_are_several_the_address_must_name_one(listed: dict[str, Any], words: str) -> None:
    with serving(lambda body, number: listed) as served, pytest.raises(TutelageError, match=f"{words}.*#MODEL"):
        reply(EndpointModel(endpoint_of(served.url)))


def test_a_folder_needs_somebody_to_serve_it() -> None:
    with pytest.raises(TutelageError, match="runs/ppo"):
        only_endpoints("runs/ppo")
