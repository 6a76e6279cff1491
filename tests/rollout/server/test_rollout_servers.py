"""What runs at an address, and which servers do not go together."""

import pytest
from served import serving

from tutelage.base.errors import TutelageError
from tutelage.rollout.server.rollout_servers import addresses, connect


def test_addresses_are_taken_apart():
    assert addresses("http://a:1/v1, https://b/") == ("http://a:1", "https://b")


@pytest.mark.parametrize(
    ("given", "told"),
    [("localhost:8000", "no address of a server"), ("http://a,", "no address"), ("http://a,http://a/v1", "twice")],
)
def test_addresses_that_are_none(given, told):
    with pytest.raises(TutelageError, match=told):
        addresses(given)


def test_a_server_is_asked_by_the_best_api_that_it_has(serve):
    (whole,), _ = serve({})
    assert (whole.api.name, whole.model, whole.context) == ("vLLM's /inference/v1/generate", "tiny", 96)
    (older,), _ = serve({"scale_out": False})
    assert older.api.name == "/v1/completions with return_token_ids"


def test_sglang_is_recognised():
    def sglang(asked, number):
        known = {"/get_server_info": {"version": "0.5.23"}, "/v1/models": {"data": [{"id": "m"}]}}
        return known.get(asked["path"].removeprefix("/v1/v1"), (404, "Not Found"))

    with serving(sglang) as served:
        (found,) = connect([served.url.removesuffix("/v1")], retries=0)
    assert (found.release, found.api.name) == ("SGLang 0.5.23", "SGLang's /generate")


def test_servers_of_different_releases_or_models_are_refused(serve):
    with pytest.raises(TutelageError, match=r"runs vLLM 0\.32\.0 and .* vLLM 0\.33\.0"):
        serve({}, {"release": "0.33.0"})
    with pytest.raises(TutelageError, match=r"serves tiny and .* large"):
        serve({}, {"name": "large"})


def test_something_else_at_the_address_is_said():
    with (
        serving(lambda asked, number: (404, "Not Found")) as served,
        pytest.raises(TutelageError, match=r"refused the request.*--rollouts takes the addresses of vLLM"),
    ):
        connect([served.url], retries=0)


def test_nobody_there():
    with pytest.raises(TutelageError, match=r"did not answer after 1 attempt.*Is it running"):
        connect(["http://127.0.0.1:9"], retries=0)
