"""Several studies on one server, and a whole server below a path: pages, links, cookies, and who is nobody where."""

import re
from collections.abc import Iterator
from html import unescape

import httpx
import jinja2
import pytest
from offenders import for_each
from starlette.testclient import TestClient

from tutelage.base.errors import TutelageError
from tutelage.people import Rater, Store, Study, add_rater, consent, create_invite, end_session, start_session
from tutelage.people.web import Served, create_server
from tutelage.people.web.app import HEADERS, below, mount_of
from tutelage.people.web.auth import csrf_token
from tutelage.people.web.routes import ROUTES
from tutelage.people.web.site import cookie_name
from tutelage.people.web.templating import Rooted, rooted

from ..worlds import QUIET
from .conftest import URL, make_study

ADDRESS = re.compile(r'(?:href|src|action|formaction)="([^"]*)"')


@pytest.fixture
def studies(lite: Store) -> tuple[Study, Study]:
    return make_study(lite), make_study(lite, name="other study", plan=QUIET)


class Site:
    """A browser at a server with two studies; every cookie it is sent, it keeps and sends as browsers do."""

    def __init__(self, store: Store, studies: tuple[Study, Study], public: str = "", strips: str = "") -> None:
        self.store, self.strips = store, strips
        app = create_server([Served(store, study) for study in studies], public_url=public)
        self.http = TestClient(app, URL, follow_redirects=False)

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path.removeprefix(self.strips))

    def post(self, path: str, **fields: str) -> httpx.Response:
        return self.http.post(path.removeprefix(self.strips), data=fields, headers={"origin": URL})

    def sign_in(self, rater: Rater, root: str) -> str:
        """Use a link that works once; returns the token of the session."""
        reply = self.post(f"{root}/return/{start_session(self.store, rater.id)}")
        assert reply.status_code == 303
        return reply.cookies[cookie_name(self.store, secure=False, root=root)]


def addresses(page: str) -> Iterator[str]:
    return (unescape(each) for each in ADDRESS.findall(page))


@pytest.mark.parametrize(
    ("public", "strips", "base"),
    [("", "", ""), (f"{URL}/rating", "", "/rating"), (f"{URL}/rating/", "/rating", "/rating")],
    ids=["at the root", "behind a proxy", "behind a proxy that takes its path off"],
)
def test_every_page_and_redirect_stays_below_the_root(
    lite: Store, studies: tuple[Study, Study], public: str, strips: str, base: str
) -> None:
    root, site = f"{base}/s/tutoring", Site(lite, studies, public)
    owner = add_rater(lite, studies[0].id, "Olga", role="owner")
    session = site.sign_in(owner, root)
    site.strips = strips
    headers = {"cookie": f"{cookie_name(lite, secure=False, root=root)}={session}"}
    pages = [r.path for r in ROUTES if r.method == "GET" and r.form == "page" and "{" not in r.path]
    seen: set[str] = set()
    for path in [*pages, f"/owner/raters/{owner.id}", "/owner/items/ITEM-KEY%2Fc0", "/join/none", "/nowhere"]:
        reply = site.http.get((root + path).removeprefix(strips), headers=headers)
        assert reply.status_code < 500
        assert reply.headers["content-security-policy"] == HEADERS["content-security-policy"]
        if "location" in reply.headers:
            assert reply.headers["location"].startswith(f"{root}/")
        seen |= {each for each in addresses(reply.text) if each.startswith("/")}
    assert len(seen) > 30
    assert all(each.startswith(f"{root}/") for each in seen), seen
    assert (
        f'data-rater="{root}/{studies[0].id}-{owner.id}"'
        in site.http.get(f"{root}/rate".removeprefix(strips), headers=headers).text
    )
    for each in seen:
        if "/static/" in each:
            file = site.get(each)
            assert file.status_code == 200
            cached = "public" if "/fonts/" in each else "no-cache"
            assert file.headers["cache-control"].startswith(cached)


def test_the_cookie_of_a_session_stays_below_its_study(lite: Store, studies: tuple[Study, Study]) -> None:
    site = Site(lite, studies)
    reply = site.post(f"/s/tutoring/return/{start_session(lite, add_rater(lite, studies[0].id, 'Anna').id)}")
    assert "Path=/s/tutoring;" in reply.headers["set-cookie"]
    assert "Path=/;" not in reply.headers["set-cookie"]
    assert cookie_name(lite, secure=True, root="/s/a").startswith("__Secure-")
    assert cookie_name(lite, secure=True).startswith("__Host-")
    names = {cookie_name(lite, secure=False, root=root) for root in ("", "/s/a", "/s/b")}
    assert len(names) == 3


@pytest.mark.parametrize("role", ["rater", "reviewer", "owner"])
def test_somebody_of_one_study_is_nobody_in_another(lite: Store, studies: tuple[Study, Study], role: str) -> None:
    site = Site(lite, studies)
    member = add_rater(lite, studies[0].id, "Anna", role=role)  # type: ignore[arg-type]
    consent(lite, member.id)
    session = start_session(lite, member.id)
    for root, known in (("/s/tutoring", True), ("/s/other-study", False)):
        cookie = {"cookie": f"{cookie_name(lite, secure=False, root=root)}={session}"}
        for route in ROUTES:
            if route.who != "anyone" and "{" not in route.path and route.path != "/leave":
                more = {"origin": URL, "x-csrf-token": csrf_token(session)}
                status = site.http.request(
                    route.method, root + route.path, headers=cookie | more, json={} if route.form == "json" else None
                ).status_code
                assert status != 401 if known else status == 401
    assert site.get(f"/s/other-study/join/{create_invite(lite, studies[0].id).secret}").status_code == 404
    assert site.get(f"/s/other-study/return/{session}").status_code == 404
    assert site.get(f"/s/tutoring/return/{session}").status_code == 200


def test_the_front_page_lists_studies_for_their_members_only(lite: Store, studies: tuple[Study, Study]) -> None:
    def front() -> list[str]:
        page = site.get("/").text
        return [study.name for study in studies if study.name in page]

    site = Site(lite, studies)
    assert front() == []
    site.sign_in(add_rater(lite, studies[0].id, "Anna"), "/s/tutoring")
    assert front() == []
    first = site.sign_in(add_rater(lite, studies[0].id, "Olga", role="owner"), "/s/tutoring")
    assert front() == ["tutoring"]
    site.sign_in(add_rater(lite, studies[1].id, "Rita", role="reviewer"), "/s/other-study")
    assert front() == ["tutoring", "other study"]
    end_session(lite, first)
    assert front() == ["other study"]
    forged = {name: value for name, value in site.http.cookies.items() if name.startswith("tutelage_front")}
    for name, value in forged.items():
        site.http.cookies.set(name, value.partition(".")[0] + "." + "0" * 64, path="/")
    site.http.cookies.clear()
    assert front() == []


def test_a_forged_mark_of_membership_lists_nothing(lite: Store, studies: tuple[Study, Study]) -> None:
    site = Site(lite, studies)
    site.sign_in(add_rater(lite, studies[0].id, "Olga", role="owner"), "/s/tutoring")
    [(name, value)] = [(n, v) for n, v in site.http.cookies.items() if n.startswith("tutelage_front")]
    site.http.cookies.clear()
    assert "tutoring" in site.http.get("/", headers={"cookie": f"{name}={value}"}).text
    number, _, code = value.partition(".")
    for wrong in (f"{int(number) + 1}.{code}", f"{number}.{'0' * 64}", number, f"x.{code}", "", f"{number}.ä"):
        page = site.http.get("/", headers={"cookie": f"{name}={wrong}".encode()})
        assert page.status_code == 200
        assert "tutoring" not in page.text


def test_addresses_of_studies_hold_nothing_to_quote_and_are_different(lite: Store) -> None:
    assert mount_of("tutoring") == "/s/tutoring"
    assert mount_of("Year 4/b: häuser?") == "/s/Year-4-b-h-user"
    assert mount_of("../..") == "/s/study"
    both = [make_study(lite, name=name) for name in ("a b", "a-b")]
    with pytest.raises(TutelageError, match="/s/a-b"):
        create_server([Served(lite, study) for study in both])


def test_the_server_says_that_it_works_and_nothing_else(lite: Store, studies: tuple[Study, Study]) -> None:
    site = Site(lite, studies)
    for path in ("/healthz", "/s/tutoring/healthz"):
        assert site.get(path).json() == {"status": "ok"}
    unknown = site.get("/s/unknown/owner")
    assert unknown.status_code == 404
    assert "tutoring" not in unknown.text


def test_a_full_disk_is_no_health(lite: Store, studies: tuple[Study, Study], monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(lite, studies)
    monkeypatch.setattr("tutelage.people.store.engine.LEAST_FREE", 2**63)
    for path in ("/healthz", "/s/tutoring/healthz"):
        reply = site.get(path)
        assert reply.status_code == 503
        assert "full" in reply.text


def rendered(source: str, root: str, **values: object) -> str:
    environment = jinja2.Environment(extensions=[Rooted], autoescape=True)
    environment.globals["root"] = root
    return environment.from_string(source).render(values)


@pytest.mark.parametrize("root", ["", "/s/a"])
def test_only_addresses_of_the_site_get_its_root(root: str) -> None:
    source = (
        '<a href="/owner">href="/owner"</a><img src="{{ image }}"><form action="/x"></form>'
        '<a href="{{ out }}"></a><a href="//cdn/x"></a><a href="#main"></a><a href="?p=1"></a><p>{{ text }}</p>'
    )
    page = rendered(source, root, image="/i.png", out="https://a.test/b", text='href="/owner"')
    assert page == (
        f'<a href="{root}/owner">href="{root}/owner"</a><img src="{root}/i.png"><form action="{root}/x"></form>'
        '<a href="https://a.test/b"></a><a href="//cdn/x"></a><a href="#main"></a><a href="?p=1"></a>'
        "<p>href=&#34;/owner&#34;</p>"
    )


def test_an_expression_with_quotes_and_a_condition_keeps_its_meaning() -> None:
    source = """<a href="{{ "/a" if yes else "/b" }}">{% for x in ["/c"] %}<a href="{{ x }}?y={{ yes }}">{% endfor %}"""
    assert '"/r/a"' in rendered(source, "/r", yes=True)
    assert '<a href="/r/c?y=True">' in rendered(source, "/r", yes=True)


@for_each(
    [("/a", "/r/a"), ("//evil.test", "//evil.test"), ("https://a.test", "https://a.test"), ("", ""), ("?x", "?x")]
)
def test_redirects_leave_other_sites_alone(address: str, found: str) -> None:
    assert rooted("/r", address) == found


@for_each(
    [
        ("", "/s/a/owner", ("/s/a", "/s/a/owner")),
        ("", "/s/a", ("/s/a", "/s/a/")),
        ("", "/s/ab", None),
        ("", "/owner", None),
        ("/p", "/p/s/a/x", ("/p/s/a", "/p/s/a/x")),
        ("/p", "/s/a/x", None),
    ]
)
def test_a_request_is_below_a_path_by_whole_parts(root_path: str, path: str, inside: object) -> None:
    scope = below({"type": "http", "root_path": root_path, "path": path}, "/s/a")
    assert (scope and (scope["root_path"], scope["path"])) == inside
