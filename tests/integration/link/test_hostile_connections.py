"""Hostile connections of every kind, from one address and from many, do not stop central from serving others."""

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
import trustme

from fieldpost.front.options import FrontOptions
from fieldpost.testing import ManualClock
from support.front import Front, open_front
from support.hostile import hostile, running_target, target_of, withstand
from support.hostile_peers import KINDS, SILENT
from support.line import without_bugs
from support.running_central import RunningCentral, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs many loopback addresses and /proc")

COUNT = 60
OPTIONS = {"header_s": 1.0, "body_grace_s": 1.0}


@pytest.fixture
async def front(sqlite_url: str) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, ManualClock()) as opened:
        yield opened


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A file with certificate and key, and a context that trusts it."""
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    path = tmp_path_factory.mktemp("tls") / "central.pem"
    path.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return path, trusting


@pytest.mark.threat(28)
@pytest.mark.parametrize("addresses", [1, COUNT], ids=["one address", "many addresses"])
@pytest.mark.parametrize("kind", KINDS)
async def test_probes_are_answered_during_a_flood(
    front: Front, caplog: pytest.LogCaptureFixture, kind: str, addresses: int
) -> None:
    # A ping flood authenticates as a site: while central checks sixty tokens, sixty places are at work, not waiting.
    connections_max = 2 * COUNT if kind == "ping flood" else COUNT
    with without_bugs(caplog):
        async with target_of(front, FrontOptions(connections_max=connections_max, **OPTIONS)) as target:
            await withstand(target, kind, COUNT, addresses=addresses, seconds=2.0)


@pytest.mark.threat(28)
@pytest.mark.parametrize("addresses", [1, COUNT], ids=["one address", "many addresses"])
@pytest.mark.parametrize("kind", [SILENT, "slow reader"])
async def test_probes_are_answered_during_a_flood_with_tls(
    front: Front,
    caplog: pytest.LogCaptureFixture,
    certificate: tuple[Path, ssl.SSLContext],
    kind: str,
    addresses: int,
) -> None:
    path, trusting = certificate
    options = FrontOptions(connections_max=COUNT, tls_cert=str(path), **OPTIONS)
    with without_bugs(caplog):
        async with target_of(front, options, trusting) as target:
            await withstand(target, kind, COUNT, addresses=addresses, seconds=2.0)


@pytest.mark.threat(28)
@pytest.mark.parametrize("kind", ["slow reader", "ping flood"])
async def test_a_running_central_reports_no_bug_during_a_flood(sqlite_url: str, tmp_path: Path, kind: str) -> None:
    """Its event loop, uvloop, fails on writes that the standard one ignores."""
    environment = {f"FIELDPOST_FRONT__{name.upper()}": str(value) for name, value in OPTIONS.items()}
    async with RunningCentral(sqlite_url, tmp_path / "central", environment=environment) as central:
        await withstand(await running_target(central, None), kind, COUNT, addresses=COUNT, seconds=3.0)
        assert not central.surprises()


@pytest.mark.threat(28)
async def test_a_client_that_reads_nothing_is_cut_off(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    options = FrontOptions(header_s=1.0, body_grace_s=1.0)
    with without_bugs(caplog):
        async with target_of(front, options) as target, hostile(target, "slow reader", 4, addresses=1):
            connections = target.server.server_state.connections
            await until(lambda: target.open_count == 4, what="the slow readers")
            first = set(connections)
            await until(lambda: not first & connections, what="their end", timeout_s=8)


@pytest.mark.threat(28)
async def test_a_tls_socket_without_a_handshake_is_closed(
    front: Front, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    path, trusting = certificate
    options = FrontOptions(header_s=0.5, tls_cert=str(path))
    async with target_of(front, options, trusting) as target:
        silent = socket.create_connection(target.address)
        silent.setblocking(False)
        with silent:
            async with asyncio.timeout(3):
                assert await asyncio.get_running_loop().sock_recv(silent, 1) == b""
        await target.probe()


@pytest.mark.threat(28)
async def test_tls_sockets_count_before_their_handshake(front: Front, certificate: tuple[Path, ssl.SSLContext]) -> None:
    path, trusting = certificate
    options = FrontOptions(connections_per_address=4, tls_cert=str(path))
    loop = asyncio.get_running_loop()
    async with target_of(front, options, trusting) as target, AsyncExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(target.address)) for _ in range(5)]
        for one in silent:
            one.setblocking(False)
        async with asyncio.timeout(3):
            assert await loop.sock_recv(silent[4], 1) == b""
        await target.probe()
        for one in silent[:4]:
            with pytest.raises(BlockingIOError):
                one.recv(1)


@pytest.mark.threat(29)
async def test_unauthenticated_connections_are_limited_per_address(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    with without_bugs(caplog):
        async with target_of(front, FrontOptions(connections_per_address=4)) as target, AsyncExitStack() as stack:
            for _ in range(4):
                stack.enter_context(socket.create_connection(target.address))
            reader, writer = await asyncio.open_connection(*target.address)
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"http.address_busy" in answer
            counted = await target.front.watch.exposition.text()
            assert 'fieldpost_connections_refused_total{code="http.address_busy"} 1.0' in counted
            await target.probe()


@pytest.mark.threat(29)
async def test_a_connection_that_authenticates_no_longer_counts_against_its_address(front: Front) -> None:
    headers = {"Authorization": f"Bearer {front.tokens['site']}"}
    async with (
        target_of(front, FrontOptions(connections_per_address=2, connections_per_site=6)) as target,
        aiohttp.ClientSession(headers=headers) as http,
        AsyncExitStack() as stack,
    ):
        for _ in range(6):
            await stack.enter_async_context(http.ws_connect(f"{target.server.url}/link/v1/data"))
        async with http.get(f"{target.server.url}/healthz") as answer:
            assert answer.status == 200


async def test_refusals_on_the_wire_have_the_security_headers(front: Front) -> None:
    requests = {
        b"GET /healthz HTTP/1.1\r\n\r\n": b"http.host",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n": b"http.host",
        b"nonsense\r\n\r\n": b"http.malformed",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000: b"http.head_too_large",
        b"GET / HTTP/1.1\r\n": b"http.too_slow",
        b"": b"http.address_busy",
    }
    async with (
        target_of(front, FrontOptions(header_s=0.5, connections_per_address=4)) as target,
        AsyncExitStack() as stack,
    ):
        for request, code in requests.items():
            if not request:
                for _ in range(4):
                    stack.enter_context(socket.create_connection(target.address))
            reader, writer = await asyncio.open_connection(*target.address)
            writer.write(request)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            assert code in body
            for name in (b"content-security-policy", b"x-content-type-options", b"cache-control: no-store"):
                assert name in head.lower(), (code, head)
