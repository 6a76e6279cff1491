"""Addresses below a path: in templates, in redirects, and in what ASGI tells an application."""

import jinja2
import pytest
from offenders import for_each

from tutelage.people.web.middleware import below
from tutelage.people.web.templating import Rooted, rooted


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
