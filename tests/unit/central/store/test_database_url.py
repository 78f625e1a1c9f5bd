"""Store URLs: the forms in which several PostgreSQL servers may be written, and the refused ones."""

import pytest

from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.postgres_servers import servers_of
from fieldpost.core.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("postgresql://u:p@a/db", [("a", None)]),
        ("postgres://u@a:6432/db", [("a", 6432)]),
        ("postgresql:///db", [(None, None)]),
        ("postgresql://u:p@a:1,b:2/db", [("a", 1), ("b", 2)]),
        ("postgresql://u:p%2Cq@a,b:2,[::1]:3/db?sslmode=require", [("a", None), ("b", 2), ("::1", 3)]),
        ("postgresql://a:1,b:2", [("a", 1), ("b", 2)]),
        ("postgresql://%2Fvar%2Frun,b/db", [("/var/run", None), ("b", None)]),
        ("postgresql://u@/db?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("postgresql://u@/db?host=a,b&port=1", [("a", 1), ("b", 1)]),
        ("postgresql://u@/db?host=a:1,b:2", [("a", 1), ("b", 2)]),
        ("postgresql://u@/db?host=a:1&host=b:2", [("a", 1), ("b", 2)]),
        ("postgresql://u@/db?host=/var/run/postgresql", [("/var/run/postgresql", None)]),
    ],
)
def test_servers_are_read_from_every_form_of_the_url(url: str, servers: list[tuple[str | None, int | None]]) -> None:
    parsed = parse_url(url)
    assert servers_of(parsed) == servers
    assert servers_of(parse_url(parsed.render_as_string())) == servers, "the stored form means the same"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://u@/db?host=a,b,c&port=1,2", "3 hosts need one port or 3 ports, got 2"),
        ("postgresql://u@a:0,b:1/db", "a port must be between 1 and 65535, got '0'"),
        ("postgresql://u@/db?host=a:1,b:70000", "a port must be between 1 and 65535, got '70000'"),
        ("postgresql://u@a,,b/db", "a host must be written as name, name:port or [IPv6 address]:port, got ''"),
        ("postgresql://u@/db?host=a:b:c", "got 'a:b:c'"),
        ("postgresql://u@a,b/db?target_session_attrs=standby", "must be read-write, primary or any, got 'standby'"),
        ("mysql://a,b/db", "must be sqlite or postgresql, not mysql"),
        ("nonsense", "must be a URL such as sqlite:///fieldpost.db"),
    ],
)
def test_invalid_urls_are_rejected_with_the_reason(url: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url(url)
    assert caught.value.code == "store.url"
    assert text in caught.value.message
