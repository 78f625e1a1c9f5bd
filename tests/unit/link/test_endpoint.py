"""Central's address as a sender is given it."""

from dataclasses import replace

import pytest

from fieldpost.core.errors import ConfigError
from fieldpost.link.endpoint import Endpoint, check_central_url, is_plain


@pytest.mark.parametrize("url", ["http://central", "https://central.example:8443", "https://example.org/fieldpost"])
def test_address_is_stored_as_given(url: str) -> None:
    assert check_central_url(url) == url
    assert check_central_url(url + "/") == url


@pytest.mark.parametrize(
    "url",
    [
        "", "central", "ftp://central", "http://", "https://user:word@central", "http://central?x=1", "http://central#x",
        "http://central:99999", "http://central:0", "http://cen tral", "http://central\n", "http://[::1", 5, None,
    ],
)  # fmt: skip
def test_invalid_address_is_rejected_with_an_example(url: object) -> None:
    with pytest.raises(ConfigError) as caught:
        check_central_url(url)
    assert caught.value.code == "central.url"
    assert "https://" in str(caught.value)


def test_the_websocket_uses_tls_exactly_when_the_address_does() -> None:
    assert Endpoint("http://c", "t").websocket_at("/x") == "ws://c/x"
    assert Endpoint("https://c/p", "t").websocket_at("/x") == "wss://c/p/x"


def test_an_endpoint_never_shows_its_token() -> None:
    assert "secret" not in repr(Endpoint("http://c", "fp_site_a_secret"))


@pytest.mark.threat(20, 38)
@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("https://central.example.org", False),
        ("http://central.example.org", True),
        ("http://10.0.0.7:8025", True),
        ("http://[2001:db8::1]", True),
        ("http://0.0.0.0:8025", True),
        ("http://localhost.evil.example", True),
        ("http://127.0.0.1.nip.io", True),
        ("http://localhost:8025", False),
        ("http://central.localhost", False),
        ("http://127.0.0.1:8025", False),
        ("http://127.8.9.10", False),
        ("http://[::1]:8025", False),
    ],
)
def test_token_is_sent_over_tls_or_with_explicit_consent(url: str, is_refused: bool) -> None:
    endpoint = Endpoint(url, "fp_site_a_secret")
    assert is_plain(url) is is_refused
    if is_refused:
        with pytest.raises(ConfigError, match="plain HTTP") as refused:
            assert endpoint.authorization
        assert refused.value.code == "central.plain"
        with pytest.raises(ConfigError):
            Endpoint("https://central", "t", more_urls=(url,)).refuse_plain()
    assert replace(endpoint, allow_plain=True).authorization == "Bearer fp_site_a_secret"
    assert is_refused or endpoint.authorization
