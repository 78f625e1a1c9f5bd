"""Central's address as a sender is given it."""

import pytest

from fieldpost.core.errors import ConfigError
from fieldpost.link.endpoint import Endpoint, check_central_url


@pytest.mark.parametrize("url", ["http://central", "https://central.example:8443", "https://example.org/fieldpost"])
def test_an_address_is_kept_as_given(url: str) -> None:
    assert check_central_url(url) == url
    assert check_central_url(url + "/") == url


@pytest.mark.parametrize(
    "url",
    [
        "", "central", "ftp://central", "http://", "https://user:word@central", "http://central?x=1", "http://central#x",
        "http://central:99999", "http://central:0", "http://cen tral", "http://central\n", "http://[::1", 5, None,
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_an_example(url: object) -> None:
    with pytest.raises(ConfigError) as caught:
        check_central_url(url)
    assert caught.value.code == "central.url"
    assert "https://" in str(caught.value)


def test_the_websocket_uses_tls_exactly_when_the_address_does() -> None:
    assert Endpoint("http://c", "t").websocket_at("/x") == "ws://c/x"
    assert Endpoint("https://c/p", "t").websocket_at("/x") == "wss://c/p/x"


def test_an_endpoint_never_shows_its_token() -> None:
    assert "secret" not in repr(Endpoint("http://c", "fp_site_a_secret"))
