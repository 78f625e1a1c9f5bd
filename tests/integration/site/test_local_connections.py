"""Connections of the local API that wait, drip, do not read or are too many: scripts with the token get through."""

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fieldpost.site.local.listener import CONNECTIONS_MIN, within_file_limit
from support.local_api import Local, serving
from support.running_central import until
from support.site_folders import make_site

pytestmark = pytest.mark.threat(30)
NOTE = {"list_name": "ops", "subject": "Pump 3 stopped", "body": "No flow."}


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Local]:
    folder = tmp_path / "site"
    make_site(folder).close()
    async with serving(folder, connections_max=8, timeout_s=0.5) as local:
        yield local


@contextmanager
def connections(local: Local, count: int, data: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open connections to the port, each after sending this."""
    port = int(local.url.rpartition(":")[2])
    opened = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection(("127.0.0.1", port)))
            opened[-1].sendall(data)
            opened[-1].setblocking(False)
        yield opened
    finally:
        for one in opened:
            one.close()


def is_closed(connection: socket.socket) -> bool:
    try:
        while data := connection.recv(65536):
            assert data
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


async def send(local: Local) -> int:
    body = json.dumps(NOTE).encode()
    headers = {"Content-Type": "application/json", "Connection": "close"}
    answer = await local.over_port("POST", "/v1/notifications", token=local.token, data=body, **headers)
    return answer.status


HEAD = b"POST /v1/notifications HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("begun", [b"", b"POST /v1/not", HEAD], ids=["idle", "start", "head"])
async def test_a_connection_that_sends_no_request_is_closed_after_the_timeout(local: Local, begun: bytes) -> None:
    with connections(local, 8, begun) as opened:
        await until(lambda: all(map(is_closed, opened)), 5, "the waiting connections to be closed")
        assert await send(local) == 201


async def test_a_body_that_does_not_arrive_is_answered_with_408(local: Local) -> None:
    begun = HEAD + f"Authorization: Bearer {local.token}\r\nContent-Length: 90\r\n\r\n".encode() + b'{"list_name":'
    with connections(local, 1, begun) as [connection]:
        answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 65536), 5)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"http.too_slow" in answer


async def test_connections_without_the_token_make_room_for_scripts(local: Local) -> None:
    """Many more than the maximum, at once and all the time."""
    with connections(local, 40, HEAD) as opened:
        assert await send(local) == 201
        assert sum(not is_closed(one) for one in opened) <= 8


async def test_connections_beyond_the_maximum_are_refused_while_all_others_work(local: Local) -> None:
    """The bodies of eight scripts are on their way; the ninth script hears that it should try again."""
    begun = HEAD + f"Authorization: Bearer {local.token}\r\nContent-Length: 90\r\n".encode()
    with connections(local, 8, begun + b"Expect: 100-continue\r\n\r\n") as opened, capture_logs() as logs:
        loop = asyncio.get_running_loop()
        for one in opened:
            assert await asyncio.wait_for(loop.sock_recv(one, 65536), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
        answers = [loop.create_task(loop.sock_recv(one, 65536)) for one in opened]
        with connections(local, 1) as [ninth]:
            answer = await asyncio.wait_for(loop.sock_recv(ninth, 65536), 5)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"local.busy"' in answer
        assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in await asyncio.gather(*answers))
    assert [log["code"] for log in logs if log["event"] == "local.refused"] == ["local.busy"]
    assert await send(local) == 201


async def test_a_client_that_does_not_read_is_closed_after_the_timeout(local: Local) -> None:
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connections(local, 4) as opened:
        loop = asyncio.get_running_loop()
        for one in opened:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writing = [loop.create_task(loop.sock_sendall(one, ask * 100_000)) for one in opened]
        ended = await asyncio.wait_for(asyncio.gather(*writing, return_exceptions=True), 20)
        assert all(isinstance(error, ConnectionError) for error in ended)
        assert await send(local) == 201


@pytest.mark.fault(78)
async def test_a_process_without_free_descriptors_pauses_accepting_and_recovers(local: Local) -> None:
    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with capture_logs() as logs, connections(local, 0):
        port = int(local.url.rpartition(":")[2])
        clients = [socket.socket() for _ in range(50)]
        lowest = max(client.fileno() for client in clients) + 1
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            for client in clients:
                client.setblocking(False)
                assert client.connect_ex(("127.0.0.1", port)) in (0, 115)
            await until(lambda: any(log["event"] == "local.refused" for log in logs), 5, "the failure to be logged")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for client in clients:
                client.close()
        async with asyncio.timeout(5):
            while await send(local) != 201:
                pass
    assert [(log["code"], log["error"]) for log in logs if log["event"] == "local.refused"] == [
        ("local.not_accepted", "Too many open files")
    ]
    assert failures == []


def test_the_maximum_leaves_descriptors_for_the_rest_of_the_agent() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for limit, connections_max in ((1024, 128), (256, 80), (100, CONNECTIONS_MIN)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            assert within_file_limit(128) == connections_max
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
