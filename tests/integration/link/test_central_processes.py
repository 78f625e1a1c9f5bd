"""The handoff to real central processes: killed between persist and ack, several on one store, and under attack."""

import asyncio
import gzip
import os
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.sqlite_store import sqlite_module
from fieldpost.clock import SystemClock
from fieldpost.core.ids import new_id
from fieldpost.link.codec import decode, encode
from fieldpost.link.messages import FRAME_BYTES_MAX, Ack, Hello, Item, LinkMessage, Refusal, Submit
from fieldpost.testing import MailServer
from support.cluster import Cluster
from support.need import cannot_have
from support.running_central import RunningCentral, call, until

MEBIBYTE = 1024 * 1024
DEADLINE_S = 30.0


class Withholding:
    """A line to central on which, from a moment on, nothing comes back."""

    def __init__(self, url: str) -> None:
        self.url = ""
        self.is_withholding = False
        self._there = urlsplit(url)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(self._there.hostname, self._there.port)
        await asyncio.gather(
            self._pass_on(reader, there_writer, is_back=False),
            self._pass_on(there_reader, writer, is_back=True),
            return_exceptions=True,
        )

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_back: bool) -> None:
        try:
            while data := await reader.read(65536):
                if not (is_back and self.is_withholding):
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def withholding(url: str) -> AsyncIterator[Withholding]:
    line = Withholding(url)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        server.close()


@asynccontextmanager
async def websocket_to(url: str, token: str) -> AsyncIterator[Any]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(url, headers=headers) as http,
        http.ws_connect("/link/v1/data", autoping=False, compress=0) as websocket,
    ):
        assert isinstance(await receive(websocket), Hello)
        yield websocket


async def receive(websocket: Any) -> LinkMessage:
    async with asyncio.timeout(DEADLINE_S):
        while (frame := await websocket.receive()).type is aiohttp.WSMsgType.PING:
            await websocket.pong(frame.data)
    assert frame.type is aiohttp.WSMsgType.BINARY, frame
    return decode(frame.data)


async def verdicts(url: str, token: str, items: tuple[Item, ...]) -> set[str]:
    async with websocket_to(url, token) as websocket:
        await websocket.send_bytes(encode(Submit(1, items)))
        ack = await receive(websocket)
    assert isinstance(ack, Ack)
    assert [result.notification_id for result in ack.results] == [item.notification_id for item in items]
    return {result.verdict for result in ack.results}


async def add_site(node: RunningCentral) -> str:
    admin = (node.folder / "api-token").read_text().strip()
    return str((await call(node, admin, "POST", "sites", {"name": "plant-7"}))["token"])


async def submitted(store_url: str) -> tuple[int, int]:
    """How many rows, and how many sends in the audit, a visitor of the database sees."""
    sql = "select (select count(*) from notifications), (select count(*) from audit where kind = 'notify_send')"
    if store_url.startswith("postgresql"):
        visitor = await asyncpg.connect(store_url)
        try:
            return tuple(await visitor.fetchrow(sql))  # type: ignore[return-value]
        finally:
            await visitor.close()
    other = sqlite_module.connect(parse_url(store_url).database)
    try:
        return other.execute(sql).fetchone()  # type: ignore[no-any-return]
    finally:
        other.close()


def items(count: int, list_name: str = "ops") -> tuple[Item, ...]:
    now = SystemClock().now()
    return tuple(Item(new_id(now, os.urandom(10)), list_name, "Pump 3 stopped", "No flow.") for _ in range(count))


@pytest.mark.req("ING-07", "ING-06", "DEC-01")
async def test_central_killed_between_persist_and_ack_loses_nothing_and_the_resend_is_a_duplicate(
    store_url: str, tmp_path: Path
) -> None:
    sent = items(20)
    async with RunningCentral(store_url, tmp_path / "central") as central:
        token = await add_site(central)
        async with withholding(central.url) as line, websocket_to(line.url, token) as websocket:
            line.is_withholding = True
            await websocket.send_bytes(encode(Submit(1, sent)))

            async def is_persisted() -> bool:
                return await submitted(store_url) == (20, 20)

            await until(is_persisted, DEADLINE_S, "the rows to be there", every_s=0.01)
            await central.kill()
            async with asyncio.timeout(DEADLINE_S):
                frame = await websocket.receive()
            assert frame.type is not aiohttp.WSMsgType.BINARY, "no ack has come"
        await central.start()
        assert await submitted(store_url) == (20, 20)
        assert await verdicts(central.url, token, sent) == {"duplicate"}
        assert await submitted(store_url) == (20, 20)


@pytest.mark.req("ING-11", "DEC-06", "ING-07")
async def test_notification_reaches_the_shared_table_through_any_node(pg_url: str, tmp_path: Path) -> None:
    async with MailServer() as mail, Cluster(pg_url, tmp_path, mail) as cluster:
        first, second = await cluster.start(), await cluster.start()
        await cluster.furnish("ops")
        token = cluster.token
        by_first, by_second = items(10), items(10)
        assert await verdicts(first.url, token, by_first) == {"accepted"}
        assert await verdicts(second.url, token, by_second) == {"accepted"}
        # What one has taken in, the other knows.
        assert await verdicts(first.url, token, by_second) == {"duplicate"}
        assert await verdicts(second.url, token, by_first) == {"duplicate"}
        await first.kill()
        after = items(10)
        assert await verdicts(second.url, token, after) == {"accepted"}
        assert await verdicts(second.url, token, by_first) == {"duplicate"}
        assert await submitted(pg_url) == (30, 30)
        await cluster.settle()
        assert [tuple(row) for row in await cluster.query("select status, count(*) from notifications group by 1")] == [
            ("delivered", 30)
        ]


@pytest.mark.threat(2)
async def test_connections_never_use_up_the_descriptors_of_the_store(store_url: str, tmp_path: Path) -> None:
    """With a hundred files for everything, two hundred strangers leave room for the site that is there already."""
    few_files = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); "
    patient = {"FIELDPOST_FRONT__HEADER_S": "600"}
    node = RunningCentral(store_url, tmp_path / "central", first=few_files, environment=patient)
    async with node as central, AsyncExitStack() as stack:
        assert central.events("connections.limited")[0]["connections_max"] == 16
        token = await add_site(central)
        websocket = await stack.enter_async_context(websocket_to(central.url, token))
        address = urlsplit(central.url)
        strangers = []
        for _ in range(200):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            stack.callback(writer.transport.abort)
            strangers.append((reader, writer))
        turned_away = {await heard_of(reader) for reader, _ in strangers[-100:]}
        assert turned_away == {b"HTTP/1.1 503 Service Unavailable\r\n"}
        for seq in range(5):
            await websocket.send_bytes(encode(Submit(seq, items(10))))
            ack = await receive(websocket)
            assert isinstance(ack, Ack)
            assert {result.verdict for result in ack.results} == {"accepted"}


async def heard_of(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(DEADLINE_S):
        return await reader.readline()


@pytest.mark.bad_input(16)
@pytest.mark.threat(2)
async def test_hostile_bodies_use_little_memory_of_central(tmp_path: Path) -> None:
    """Each of these would fill hundreds of megabytes in a server that unpacks or collects what it is sent."""
    async with RunningCentral(f"sqlite:///{tmp_path / 'central.db'}", tmp_path / "central") as central:
        token = await add_site(central)
        assert await verdicts(central.url, token, items(500)) == {"accepted"}
        before = peak_from_now(central.pid)
        for bomb in (packed(gzip.compress), packed(zlib.compress)):
            for name in ("gzip", "deflate"):
                assert await post(central.url, token, bomb, {"Content-Encoding": name}) == 400
            assert await post(central.url, token, bomb, {}) == 400
        assert await post(central.url, token, endless(), {}) == 413
        for content in (
            b'{"t":"submit","seq":1,"items":[' + b"[]," * (FRAME_BYTES_MAX // 3 - 20) + b"0]}",
            b'{"t":"submit","seq":1,"items":[' + b"{}," * (FRAME_BYTES_MAX // 3 - 20) + b"{}]}",
            b"[" * (FRAME_BYTES_MAX - 1),
            b'{"t":"submit","seq":1,"x":"' + b"\\u0041" * (FRAME_BYTES_MAX // 6 - 20) + b'"}',
            b"9" * (FRAME_BYTES_MAX - 1),
        ):
            assert await post(central.url, token, content, {}) in (400, 422)
            async with websocket_to(central.url, token) as websocket:
                await websocket.send_bytes(content)
                assert isinstance(await receive(websocket), Refusal)
        assert peak_bytes(central.pid) - before < 64 * MEBIBYTE
        assert await verdicts(central.url, token, items(500)) == {"accepted"}
        assert not central.events("request.failed")


def packed(pack: Any) -> bytes:
    """What a quarter of a gigabyte of nothing is packed into."""
    return bytes(pack(bytes(256 * MEBIBYTE), 1))


async def endless() -> AsyncIterator[bytes]:
    for _ in range(256):
        yield bytes(MEBIBYTE)


async def post(url: str, token: str, content: Any, headers: dict[str, str]) -> int:
    given = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
    try:
        async with (
            aiohttp.ClientSession(url, headers=given) as http,
            http.post("/link/v1/submit", data=content, skip_auto_headers=["Accept-Encoding"]) as response,
        ):
            return response.status
    except aiohttp.ClientConnectionError:
        # Central has answered and hung up while we were still sending.
        return 413


def peak_from_now(pid: int) -> int:
    """What the process has now; from here on its peak is counted anew."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError as error:
        cannot_have("linux", f"the system does not tell how much memory a process takes: {error}")
    return peak_bytes(pid)


def peak_bytes(pid: int) -> int:
    """The most memory that the process has had."""
    [line] = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
