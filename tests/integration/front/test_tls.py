"""HTTPS by central itself, and behind a proxy: who is believed, and where passwords are taken."""

import asyncio
import os
import re
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import httpx2
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from starlette.types import ASGIApp
from structlog.testing import capture_logs

from fieldpost.core.errors import ConfigError
from fieldpost.front.app import create_app
from fieldpost.front.console.kit.forms import form_token
from fieldpost.front.options import FrontOptions
from fieldpost.front.proxies import caller
from fieldpost.front.server import CentralServer
from fieldpost.front.tls import Certificate
from fieldpost.link.endpoint import DATA_PATH
from fieldpost.testing import ManualClock
from support.front import ADMIN, VIEWER, Front, open_front, served
from support.running_central import until

PROXY = ("10.0.0.1", 4711)
ELSEWHERE = ("203.0.113.9", 4711)


@pytest.fixture
async def front(sqlite_url: str) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, ManualClock()) as opened:
        yield opened


class Papers:
    """A certificate authority, and the files that central reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"

    def issue(self) -> ssl.SSLContext:
        """New files by a new authority; a context that trusts it and nobody else."""
        authority = trustme.CA()
        leaf = authority.issue_cert("127.0.0.1", "localhost")
        self.key.write_bytes(leaf.private_key_pem.bytes())
        self.cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        return trusting

    @property
    def options(self) -> FrontOptions:
        return FrontOptions(tls_cert=str(self.cert), tls_key=str(self.key))


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers(tmp_path)


@pytest.mark.threat(20)
async def test_the_certificate_is_renewed_while_central_runs_and_bad_files_change_nothing(
    front: Front, papers: Papers
) -> None:
    trusting = papers.issue()
    certificate = Certificate(papers.options)
    async with served(front.app, certificate=certificate) as url:
        assert url.startswith("https://")
        assert await answers(url, trusting)
        assert not certificate.renew(), "nothing has changed"
        newer = papers.issue()
        assert certificate.renew()
        assert await answers(url, newer)
        assert not await answers(url, trusting)
        papers.key.write_bytes(b"not a key")
        with capture_logs() as logs:
            assert not certificate.renew()
        assert [line["event"] for line in logs] == ["certificate.refused"]
        papers.cert.unlink()
        assert not certificate.renew(is_requested=True)
        assert await answers(url, newer), "what was good stays in use"


@pytest.mark.threat(20)
async def test_old_version_of_tls_is_not_accepted(papers: Papers) -> None:
    papers.issue()
    assert Certificate(papers.options).context.minimum_version >= ssl.TLSVersion.TLSv1_2


async def test_certificate_files_are_checked_every_few_seconds_and_at_once_on_request(
    front: Front, papers: Papers
) -> None:
    papers.issue()
    certificate = Certificate(papers.options)
    async with served(front.app, certificate=certificate) as url:
        watching = asyncio.create_task(certificate.watch(front.clock))
        await front.clock.wait_sleepers(1)
        newer = papers.issue()
        front.clock.advance(10)
        await front.clock.wait_sleepers(1)
        assert await answers(url, newer)
        newest = papers.issue()
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(30):
            while not await answers(url, newest):
                await asyncio.sleep(0)
        watching.cancel()


async def test_link_uses_tls_too(front: Front, papers: Papers) -> None:
    trusting = papers.issue()
    headers = {"Authorization": f"Bearer {front.tokens['site']}"}
    async with (
        served(front.app, certificate=Certificate(papers.options)) as url,
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(f"{url}{DATA_PATH}", ssl=trusting) as websocket,
    ):
        assert not websocket.closed


async def test_central_stops_in_order_while_a_site_that_closed_is_still_connected(
    front: Front, papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS the line ends only when the site has answered too; this one does not listen any more."""
    monkeypatch.setattr("fieldpost.front.server.GRACE_S", 0.5)
    trusting = papers.issue()
    server = CentralServer(front.app, socket.create_server(("127.0.0.1", 0)), certificate=Certificate(papers.options))
    serving = asyncio.create_task(server.serve())
    await server.ready()
    headers = {"Authorization": f"Bearer {front.tokens['site']}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        websocket = await session.ws_connect(f"{server.url}{DATA_PATH}", ssl=trusting)
        [line] = server.server_state.connections
        websocket._response.connection.transport.pause_reading()  # type: ignore[union-attr]
        await websocket._writer.close(1000)
        await until(line.transport.is_closing, what="central to hear the goodbye")
        server.should_exit = True
        await serving
        assert line in server.server_state.connections, "it was still there"


@pytest.mark.parametrize("what", ["no cert", "no key", "not a certificate", "another's key", "key alone", "passphrase"])
async def test_files_that_cannot_be_used_are_refused_at_the_start_naming_the_setting(papers: Papers, what: str) -> None:
    papers.issue()
    cert, key = str(papers.cert), str(papers.key)
    match what:
        case "no cert":
            papers.cert.unlink()
        case "no key":
            papers.key.unlink()
        case "not a certificate":
            papers.cert.write_text("nonsense")
        case "another's key":
            papers.key.write_bytes(trustme.CA().issue_cert("127.0.0.1").private_key_pem.bytes())
        case "key alone":
            cert = ""
        case "passphrase":
            papers.key.write_bytes(encrypted(papers.key.read_bytes()))
    with pytest.raises(ConfigError) as refused:
        Certificate(FrontOptions(tls_cert=cert, tls_key=key))
    assert refused.value.field in ("front.tls_cert", "front.tls_key")


@pytest.mark.threat(20)
async def test_passwords_are_not_accepted_over_plain_http_from_another_machine(front: Front) -> None:
    for url, client in (("http://central.example", ("127.0.0.1", 1)), ("http://127.0.0.1", ELSEWHERE)):
        async with visitor(front.app, url, client) as browser:
            page = await browser.get("/login")
            assert "TLS is required" in page.text
            assert "--tls-cert" in page.text
            assert "trusted_proxies" in page.text
            assert 'type="password"' not in page.text
            csrf = form_token(browser.cookies["fieldpost-visitor"])
            form = {"csrf": csrf, "name": "viewer", "password": front.password("viewer")}
            assert (await browser.post("/login", data=form)).status_code == 403
            link = await front.operate.users.reset_password(ADMIN, "viewer")
            page = await browser.get(link.path)
            assert "TLS is required" in page.text
            assert 'type="password"' not in page.text
            chosen = {"csrf": csrf, "link": link.token, "password": "a new long one", "again": "a new long one"}
            assert (await browser.post("/set-password", data=chosen)).status_code == 403
            assert "fieldpost-session" not in browser.cookies
            assert await front.operate.logins.whose_link(link.token) == "viewer", "the link is not used up"
    plain = create_app(front.operate, front.watch, front.centre.ingest, front.commands, FrontOptions(plain_login=True))
    async with visitor(plain, "http://central.example", ELSEWHERE) as browser:
        assert 'type="password"' in (await browser.get("/login")).text


@pytest.mark.bad_input(54)
async def test_proxy_headers_are_trusted_only_from_configured_proxies(front: Front) -> None:
    said = {"x-forwarded-for": "198.51.100.7", "x-forwarded-proto": "https", "x-forwarded-host": "evil.example"}
    options = FrontOptions(trusted_proxies="10.0.0.0/8 fd00::/8")
    behind = create_app(front.operate, front.watch, front.centre.ingest, front.commands, options, front.clock)
    for app, client, is_believed in ((behind, PROXY, True), (behind, ELSEWHERE, False), (front.app, PROXY, False)):
        async with visitor(app, "http://central.example", client, said) as browser:
            page = await browser.get("/login")
            assert ('type="password"' in page.text) == is_believed
            assert "evil.example" not in page.text + str(page.headers)
            assert ("strict-transport-security" in page.headers) == is_believed
            cookies = page.headers.get_list("set-cookie")
            assert all(("__Host-" in one and "Secure" in one) == is_believed for one in cookies)
            if is_believed:
                form = {"csrf": token_in(page), "name": "viewer", "password": front.password("viewer")}
                # The browser spoke HTTPS to the proxy, so it sends a cookie that this client keeps back.
                cookie = {"cookie": cookies[0].partition(";")[0]}
                assert (await browser.post("/login", data=form, headers=cookie)).status_code == 303
    [session] = await front.operate.logins.sessions(VIEWER)
    assert session.address == "198.51.100.7"


@pytest.mark.bad_input(54)
@pytest.mark.parametrize(
    ("passed_on", "peer", "address"),
    [
        ([], "10.0.0.1", "10.0.0.1"),
        (["198.51.100.7"], "10.0.0.1", "198.51.100.7"),
        (["6.6.6.6", "198.51.100.7"], "10.0.0.1", "198.51.100.7"),
        (["6.6.6.6", "198.51.100.7", "10.0.0.2"], "10.0.0.1", "198.51.100.7"),
        (["6.6.6.6", "nonsense"], "10.0.0.1", "10.0.0.1"),
        (["198.51.100.7"], "192.0.2.1", "192.0.2.1"),
        (["10.0.0.3"], "10.0.0.1", "10.0.0.3"),
        (["[2001:db8::7]"], "10.0.0.1", "2001:db8::7"),
    ],
)
def test_address_of_the_client_is_the_last_untrusted_one(passed_on: list[str], peer: str, address: str) -> None:
    assert caller(passed_on, peer, FrontOptions(trusted_proxies="10.0.0.0/8").proxies()) == address


@pytest.mark.bad_input(54)
async def test_login_delays_use_the_address_from_the_proxy(front: Front) -> None:
    options = FrontOptions(trusted_proxies="10.0.0.1")
    behind = create_app(front.operate, front.watch, front.centre.ingest, front.commands, options, front.clock)
    for number in range(3):
        said = {"x-forwarded-for": f"{number}.{number}.{number}.{number}, 198.51.100.7", "x-forwarded-proto": "https"}
        async with visitor(behind, "https://central.example", PROXY, said) as browser:
            page = await browser.get("/login")
            form = {"csrf": token_in(page), "name": f"nobody-{number}", "password": "wrong"}
            assert (await browser.post("/login", data=form)).status_code == 401
    kept = await front.centre.rows("select failures from login_delays where key = 'network:198.51.100.7'")
    assert kept == [(3,)]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("trusted_proxies", "proxy.example"),
        ("trusted_proxies", "10.0.0.1/8"),
        ("public_url", "fieldpost.example.org"),
        ("public_url", "https://example.org/path"),
        ("public_url", "https://a:b@example.org"),
    ],
)
def test_invalid_setting_is_rejected_by_name(setting: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        FrontOptions(**{setting: value})  # type: ignore[arg-type]
    assert refused.value.field == f"front.{setting}"


async def answers(url: str, trusting: ssl.SSLContext) -> bool:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"{url}/healthz", ssl=trusting) as answer:
                return answer.status == 200 and "strict-transport-security" in answer.headers
        except aiohttp.ClientConnectorCertificateError:
            return False


def visitor(
    app: ASGIApp, url: str, client: tuple[str, int], headers: dict[str, str] | None = None
) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, client=client, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=url, headers=headers)


def token_in(page: httpx2.Response) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page.text)
    assert found, page.text
    return found[1]


def encrypted(key: bytes) -> bytes:
    loaded = serialization.load_pem_private_key(key, None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"passphrase"),
    )
