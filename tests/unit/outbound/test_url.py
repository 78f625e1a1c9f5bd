"""URLs that somebody typed."""

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.outbound.url import check_url, is_loopback

REFUSED = [
    ("", "1 to 2048"),
    ("x" * 3000, "1 to 2048"),
    (5, "must be a str"),
    (None, "must be a str"),
    ("file:///etc/passwd", "https:// or http://"),
    ("gopher://h.example/", "https:// or http://"),
    ("javascript:alert(1)", "https:// or http://"),
    ("//h.example/", "https:// or http://"),
    ("https:///path", "host|valid URL"),
    ("https://", "host|valid URL"),
    ("https://user@h.example/", "user name"),
    ("https://user:pw@h.example/", "user name"),
    ("https://h.example/#part", "fragment"),
    ("https://h.example/#", "fragment"),
    ("https://h.example:99999/", "port|valid URL"),
    ("https://h.example:0/", "port"),
    ("https://h.exam\tple/", "control"),
    ("https://h.example/\n", "control"),
    ("https://h.example/a b", "spaces"),
    ("https://h.example\\@evil.example/", "backslash"),
    ("https://[::1/", "valid URL"),
]


@pytest.mark.parametrize(("url", "rule"), REFUSED)
@pytest.mark.parametrize("mode", ["strict", "admin"])
def test_invalid_url_is_rejected_with_the_rule(url: object, rule: str, mode: str) -> None:
    with pytest.raises(InvalidInput, match=rule) as caught:
        check_url(url, mode)  # type: ignore[arg-type]
    assert caught.value.field == "url"
    assert "pw" not in caught.value.message


@pytest.mark.parametrize("port", [22, 25, 110, 143, 587])
def test_strict_policy_allows_web_ports_and_high_ports_only(port: int) -> None:
    with pytest.raises(InvalidInput, match="port under 1024"):
        check_url(f"https://h.example:{port}/", "strict")
    check_url(f"https://h.example:{port}/", "admin")


def test_credentials_over_plain_http_only_to_this_machine() -> None:
    with pytest.raises(InvalidInput, match="https:// unless"):
        check_url("http://login.example/token", "admin")
    for url in ("http://127.0.0.1:8080/token", "http://localhost/token", "http://[::1]/token"):
        assert str(check_url(url, "admin")) == url
    check_url("http://h.example/hook", "strict")


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("LOCALHOST.", True), ("127.9.9.9", True), ("10.0.0.1", False), ("h", False)],
)
def test_names_of_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
