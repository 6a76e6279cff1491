"""Programs that use the API of a site in a test."""

import json
from typing import Any

import httpx
import jsonschema

from tutelage.people.settings import RIGHTS, NewToken
from tutelage.people.store.api_tokens import create_token
from tutelage.people.web.api.dispatch import ROOT, ApiRoute
from tutelage.people.web.api.endpoints import API_ROUTES, openapi

from ..conftest import World

DESCRIPTION = openapi(API_ROUTES)
VOTE = {"prompt": "Why?", "response_1": "So.", "response_2": "No.", "winner": "a", "rater": "Ann"}
BODIES: dict[str, dict[str, object]] = {
    "/operations/recruit": {"platform": "mturk"},
    "/operations/consent": {"votes": "erase"},
    "/operations/plan": {"overlap": 3},
    "/operations/webhook": {"url": "https://hooks.example.org/x"},
    "/operations/webhook/revoke": {"number": 1},
    "/operations/invite": {"uses": 3},
    "/operations/invite/revoke": {"number": 1},
    "/operations/import": {"rows": [VOTE]},
    "/operations/import/preview": {"rows": [VOTE]},
}
"""A body for each address of an operation."""


class Program:
    """A program with a token or none. What it is answered is held against the description of the API."""

    def __init__(self, world: World, token: str = "", cookie: str = "") -> None:
        self.client = world.client
        self.headers = {"authorization": f"Bearer {token}"} if token else {}
        self.headers |= {"cookie": cookie} if cookie else {}

    def get(self, path: str, **query: Any) -> httpx.Response:
        found = self.client.get(ROOT + path, params=query, headers=self.headers)
        return checked(found, "get", path)

    def post(self, path: str, data: object = None, *, content: bytes = b"", **headers: str) -> httpx.Response:
        body = content or json.dumps(data).encode()
        sent = {"content-type": "application/json"} | self.headers
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return checked(self.client.post(ROOT + path, content=body, headers=sent), "post", path)

    def use(self, route: ApiRoute) -> httpx.Response:
        """Use a route as it is meant to be used."""
        if route.method == "GET":
            return self.get(route.path)
        if route.path.endswith("/revoke"):  # what there is to revoke
            self.post(route.path.removesuffix("/revoke"), BODIES[route.path.removesuffix("/revoke")])
        rows = {"rows": [{"prompt": "Why?", "chosen": "So.", "rejected": "No."}]}
        return self.post(route.path, BODIES.get(route.path, rows))


def checked(response: httpx.Response, method: str, path: str) -> httpx.Response:
    """The response, after a look whether it is what the description says of that route and status."""
    told = DESCRIPTION["paths"][ROOT + path][method]["responses"][str(response.status_code)]["content"]
    (kind,) = told
    assert response.headers["content-type"].split(";")[0] == kind
    schema = told[kind]["schema"] | {"components": DESCRIPTION["components"]}
    lines = response.text.splitlines() if kind.endswith("jsonl") else [response.text]
    validator = jsonschema.Draft202012Validator(schema)
    for line in lines:
        validator.validate(json.loads(line))
    return response


def program(world: World, *rights: str, **settings: Any) -> Program:
    """A program with a token of these rights; of all without any."""
    name = f"made at {world.store.now()}"
    new = NewToken(name, rights or RIGHTS, **settings)  # type: ignore[arg-type]  # it checks
    return Program(world, create_token(world.store, world.study.id, new).secret)
