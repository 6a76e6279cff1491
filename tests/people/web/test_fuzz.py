"""Requests that no page sends: numbers of thirty digits, bytes that are no text, JSON of any depth, as every role."""

import inspect
import json
import random
import re
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints
from urllib.parse import quote

import pytest
from hostile import BODIES, TEXTS, VALUES
from offenders import for_each

from tutelage.people import operations
from tutelage.people.settings import RIGHTS, NewToken
from tutelage.people.store.api_tokens import create_token
from tutelage.people.web.api.dispatch import ROOT, ApiRoute
from tutelage.people.web.api.endpoints import API_ROUTES
from tutelage.people.web.auth import csrf_token
from tutelage.people.web.call import Route
from tutelage.people.web.routes import ROUTES

from .conftest import Browser, World

ROLES = ("nobody", "rater", "reviewer", "owner")
WORDS = re.compile(r"""["']([A-Za-z][\w-]{0,24})["']""")


def words_of(route: Route) -> list[str]:
    """The words in the source of a route's page, among them the names of its fields and their choices."""
    sources = [inspect.getsource(inspect.getmodule(route.answer) or types.ModuleType(""))]
    held = [cell.cell_contents for cell in getattr(route.answer, "__closure__", None) or ()]
    settings = [each.settings for each in held if isinstance(each, operations.Amendment | operations.Grant)]
    sources += [inspect.getsource(each) for each in settings]
    names = {field.name for each in settings for field in fields(each)}
    return sorted(names | {word for source in sources for word in WORDS.findall(source)})


class Fuzz:
    """Random requests of a stream of its own."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.words = {route.path + route.method: words_of(route) for route in ROUTES}
        _, token = create_token(world.store, world.study.id, NewToken("fuzz", tuple(RIGHTS)))
        self.token = token
        self.browsers = dict[str, Browser]()

    def page(self) -> tuple[str, int]:
        """Send a request to a page or script. Returns its description and the status."""
        route, role = self.random.choice(ROUTES), self.random.choice(ROLES)
        words = self.words[route.path + route.method]
        path = self._path(route.path)
        if self.random.random() < 0.3:
            path += "?" + self._form(words).decode("ascii")
        browser = self._browser(role)
        kinds = {"form": "application/x-www-form-urlencoded", "json": "application/json"}
        headers = browser.headers(**{"content-type": kinds.get(route.form, "application/octet-stream")})
        headers["x-csrf-token"] = csrf_token(browser.session)
        body = b""
        if route.method == "POST":
            body = self._form(words) if route.form == "form" else self._json(words)
            body = self.random.choice(BODIES) if self.random.random() < 0.1 else body
        response = self.world.client.request(route.method, path, content=body, headers=headers)
        if response.status_code == 401 and role != "nobody":
            self.browsers.pop(role, None)
        return f"{role}: {route.method} {path[:200]} {body[:300]!r}", response.status_code

    def program(self) -> tuple[str, int]:
        """Send a request to the API. Returns its description and the status."""
        route = self.random.choice(API_ROUTES)
        path, query = ROOT + route.path, get_type_hints(route.query)
        if self.random.random() < 0.5:
            path += "?" + self._form([*query, "x"]).decode("ascii")
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        if self.random.random() < 0.1:
            headers["idempotency-key"] = self.random.choice(["k", "k" * 300, "1" * 30])
        body = self._api_body(route)
        response = self.world.client.request(route.method, path, content=body, headers=headers)
        return f"api: {route.method} {path[:200]} {body[:300]!r}", response.status_code

    def _browser(self, role: str) -> Browser:
        if role not in self.browsers:
            self.browsers[role] = getattr(self.world, role)()
            self.browsers[role].blind = False
        return self.browsers[role]

    def _path(self, path: str) -> str:
        def value(match: re.Match[str]) -> str:
            return quote(self.random.choice(TEXTS)[:3000].encode("utf-8", "surrogatepass"), safe="") or "0"

        return re.sub(r"\{[\w:]+\}", value, path)

    def _form(self, words: list[str]) -> bytes:
        pairs = []
        for name in self.random.choices(words, k=self.random.randint(0, 6)):
            value = self.random.choice(words if self.random.random() < 0.4 else TEXTS)[:20_000]
            pairs.append(f"{quote(name)}={quote(value.encode('utf-8', 'surrogatepass'))}")
        return "&".join(pairs)[:30_000].encode()

    def _json(self, words: list[str]) -> bytes:
        names = self.random.choices(words, k=self.random.randint(0, 8))
        values = [self.random.choice(words if self.random.random() < 0.3 else VALUES) for _ in names]
        return json.dumps(dict(zip(names, values, strict=True))).encode()

    def _api_body(self, route: ApiRoute) -> bytes:
        if route.data is None or self.random.random() < 0.1:
            return self.random.choice(BODIES)
        return json.dumps(self._of_type(route.data)).encode()

    def _of_type(self, hint: Any, depth: int = 0) -> Any:
        """A value of a type, or at times of none."""
        if self.random.random() < 0.1 or depth > 4:
            return self.random.choice(VALUES)
        members = [each for each in get_args(hint) if each is not Ellipsis]
        if is_dataclass(hint) or hasattr(hint, "__struct_fields__"):
            hints = get_type_hints(hint)
            return {name: self._of_type(each, depth + 1) for name, each in hints.items() if self.random.random() < 0.8}
        if get_origin(hint) in (tuple, list):
            return [self._of_type(members[0], depth + 1) for _ in range(self.random.randint(0, 3))]
        if get_origin(hint) is dict:
            return {self.random.choice(TEXTS): self._of_type(members[-1], depth + 1)}
        if members:
            chosen = self.random.choice(members)
            return self._of_type(chosen, depth + 1) if isinstance(chosen, type) or get_args(chosen) else chosen
        if hint is int:
            return self.random.choice([0, 1, 2, -1, 10**30, 2**63, 2**31, 2**63 - 1, -(2**63)])
        if hint is float:
            return self.random.choice([0.0, 1.5, -1.0, 1e308, 10**30])
        return self.random.choice([True, False]) if hint is bool else self.random.choice(TEXTS)


def outcomes(world: World, count: int, seed: int) -> Iterator[tuple[str, int]]:
    fuzz = Fuzz(world, seed)
    for _ in range(count):
        yield fuzz.page() if fuzz.random.random() < 0.8 else fuzz.program()


@pytest.mark.parametrize(
    ("count", "seed"), [(300, 1), *(pytest.param(1_000, seed, marks=pytest.mark.long) for seed in range(2, 12))]
)
def test_no_request_is_a_defect(world: World, count: int, seed: int) -> None:
    """A request that the server cannot answer raises in the client, which would otherwise see a 500."""
    statuses = set()
    for request, status in outcomes(world, count, seed):
        assert status < 500 or status == 503, request
        statuses.add(status)
    assert {200, 400, 401, 403, 404} <= statuses


@for_each(["9" * 30, "9" * 19, "2²", "١" * 5, "1" * 5000])
def test_a_number_that_no_record_has_is_not_found(name: str, world: World) -> None:
    owner = world.owner()
    for back in ("", "yes"):
        fields = {"scope": "judgement", "name": name, "back": back, f"reason-{name}": "wrong"}
        assert owner.form("/owner/exclusions", fields).status_code == 400


@pytest.mark.parametrize("path", ["/owner/items?q=%00", "/owner/items/%00", "/owner/raters/1?said=a%00"])
def test_a_nul_character_is_refused(world: World, path: str) -> None:
    owner = world.owner()
    assert owner.get(path).status_code == 400
    assert owner.form("/owner/exclusions", {"scope": "item", "name": "a\0b", "reason": "wrong"}).status_code == 400


def test_a_nul_character_in_many_lists_is_refused(world: World) -> None:
    body = '{"rows": [{"prompt": ' + "[" * 700 + '"\\u0000"' + "]" * 700 + "}]}"
    _, token = create_token(world.store, world.study.id, NewToken("fuzz", ("add",)))
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    reply = world.client.request("POST", f"{ROOT}/items", content=body, headers=headers)
    assert reply.status_code == 400
