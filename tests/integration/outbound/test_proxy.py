"""All HTTP requests go through the proxy of `[outbound] proxy`: it resolves names, and its password stays hidden."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from yarl import URL

from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.outbound.client import HttpClient, NoAnswer
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.progress import HttpPhase
from fieldpost.outbound.tokens import Credential
from fieldpost.run.effective_settings import effective_settings
from fieldpost.run.settings import CentralSettings
from fieldpost.testing.http import HttpServer
from support.ports import free_port
from support.tinyproxy import PASSWORD, USER, Tinyproxy, tinyproxy
from support.token_server import token_server

pytestmark = pytest.mark.req("DEC-64")


@pytest.fixture(scope="module")
def proxy() -> Iterator[Tinyproxy]:
    with tinyproxy() as started:
        yield started


async def never(host: str, _port: int) -> list[str]:
    raise AssertionError(f"{host} was resolved here and not by the proxy")


async def ask(client: HttpClient, url: str, timeout_s: float = 20.0) -> int:
    answer = await client.request("POST", URL(url), headers={}, body=b"{}", timeout_s=timeout_s)
    return answer.status


async def test_requests_and_tokens_go_through_the_proxy_which_resolves_names(proxy: Tinyproxy) -> None:
    outbound = Outbound(OutboundOptions(**proxy.options), resolve=never)
    async with HttpServer() as server, token_server() as tokens:
        assert await ask(outbound.strict_http, f"http://localhost:{server.port}/hook") == 200
        assert await ask(outbound.strict_http, f"http://localhost:{server.port}/hook") == 200
        assert len({request.connection for request in await server.received(2)}) == 1, "the tunnel is used again"
        url = tokens.url.replace("127.0.0.1", "localhost")
        found = await outbound.strict_tokens.get(Credential(url, "client", Secret("secret"), ""))
        assert found.reveal() == tokens.given[0]
    assert f"CONNECT localhost:{server.port}" in proxy.log()
    await outbound.strict_http.check_hosts("only-the-proxy-knows.example", "url")
    await outbound.close()


async def test_literal_addresses_are_checked_and_denied_ones_never_reach_the_proxy(
    proxy: Tinyproxy,
) -> None:
    outbound = Outbound(OutboundOptions(**proxy.options), resolve=never)
    for url in ("http://127.0.0.1:9999/", "http://169.254.169.254/latest", "http://[::1]:9999/"):
        with pytest.raises(Blocked):
            await ask(outbound.strict_http, url)
        with pytest.raises(InvalidInput):
            await outbound.strict_http.check_hosts(URL(url).raw_host or "", "url")
    assert "169.254.169.254" not in proxy.log()
    async with HttpServer() as server:
        assert await ask(outbound.admin_http, f"{server.url}/") == 200
    await outbound.close()


async def test_failures_of_the_proxy_and_of_the_receiver_are_distinguished(proxy: Tinyproxy, tmp_path: Path) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("canary-of-another-proxy")
    closed = free_port()
    cases: list[tuple[dict[str, str], HttpPhase, str]] = [
        ({**proxy.options, "proxy_password_file": str(wrong)}, HttpPhase.PROXY, "the proxy answered 4"),
        ({"proxy": f"http://127.0.0.1:{closed}"}, HttpPhase.PROXY, "no connection to the proxy: Connection refused"),
        (proxy.options, HttpPhase.CONNECT, "the proxy answered 5"),
    ]
    for options, phase, text in cases:
        outbound = Outbound(OutboundOptions(**options), resolve=never)
        with capture_logs() as logs, pytest.raises(NoAnswer) as caught:
            await ask(outbound.strict_http, f"http://localhost:{closed}/")
        assert (caught.value.phase, caught.value.is_sent) == (phase, False)
        assert text in caught.value.reason
        assert "canary" not in caught.value.reason + str(logs)
        await outbound.close()


async def test_a_proxy_that_hangs_or_does_not_speak_http_ends_at_the_deadline_or_at_once() -> None:
    said = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if said.is_set():
            writer.write(b"220 mail.example.org ESMTP\r\n\r\n")
            await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    outbound = Outbound(OutboundOptions(proxy=f"http://127.0.0.1:{port}"))
    with pytest.raises(NoAnswer) as caught:
        await ask(outbound.strict_http, "https://hooks.example/", timeout_s=0.3)
    assert (caught.value.phase, caught.value.is_timeout) == (HttpPhase.PROXY, True)
    said.set()
    with pytest.raises(NoAnswer, match="did not answer CONNECT with HTTP"):
        await ask(outbound.strict_http, "https://hooks.example/")
    await outbound.close()
    server.close()


async def test_variables_of_the_environment_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    outbound = Outbound()
    async with HttpServer() as server:
        assert await ask(outbound.admin_http, f"{server.url}/") == 200
    await outbound.close()


@pytest.mark.dec("DEC-34")
def test_proxy_password_is_in_no_setting_and_never_printed(proxy: Tinyproxy) -> None:
    options = OutboundOptions(**proxy.options)
    found = options.proxy_server()
    assert found is not None
    assert found.password.reveal() == PASSWORD
    shown = f"{options!r} {found!r} {effective_settings(CentralSettings(outbound=options))}"
    assert PASSWORD not in shown
    assert base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode() not in shown


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"proxy": "proxy:3128"}, "proxy"),
        ({"proxy": "https://proxy:3128"}, "proxy"),
        ({"proxy": "http://proxy"}, "proxy"),
        ({"proxy": "http://proxy:99999"}, "proxy"),
        ({"proxy": "http://proxy:3128/path"}, "proxy"),
        ({"proxy": "http://proxy:3128\r\nX: y"}, "proxy"),
        ({"proxy": "http://me:canary@proxy:3128"}, "proxy"),
        ({"proxy_user": "me"}, "proxy_user"),
        ({"proxy": "http://proxy:3128", "proxy_user": "a:b"}, "proxy_user"),
        ({"proxy": "http://proxy:3128", "proxy_password_file": "file"}, "proxy_password_file"),
    ],
)
def test_invalid_settings_of_the_proxy_are_refused_by_field_and_rule(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OutboundOptions(**given)
    assert caught.value.field == f"outbound.{field}"
    assert "canary" not in caught.value.message


def test_a_missing_password_file_is_refused() -> None:
    options = OutboundOptions(proxy="http://proxy:3128", proxy_user="me", proxy_password_file="/nowhere/password")
    with pytest.raises(ConfigError, match=r"outbound\.proxy_password_file cannot be read: No such file"):
        Outbound(options)
