"""The guarded client with many receivers: silent name servers, limits of connections. 127.0.0.2 stands for a public
address, at which all of them live."""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
from aiohttp import web

from fieldpost.outbound import connection
from fieldpost.outbound.client import HttpAnswer, HttpClient, NoAnswer
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.progress import HttpPhase
from fieldpost.outbound.resolver import SystemResolver
from fieldpost.outbound.url import check_url

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")

PUBLIC = "127.0.0.2"


class Receivers:
    """Serves two ports; `/hold` is answered after `release`."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.busy: Counter[str] = Counter()
        self.busiest: Counter[str] = Counter()
        self.release = asyncio.Event()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        host = request.host.partition(":")[0]
        self.busy[host] += 1
        self.busiest[host] = max(self.busiest[host], self.busy[host])
        if request.path == "/hold":
            await self.release.wait()
        self.busy[host] -= 1
        return web.Response(text="ok")


@pytest.fixture
async def receivers() -> AsyncIterator[Receivers]:
    receivers = Receivers()
    runner = web.ServerRunner(web.Server(receivers.handle), shutdown_timeout=0.1)
    await runner.setup()
    for _ in range(2):
        await web.TCPSite(runner, PUBLIC, 0, backlog=1024).start()
    receivers.ports = [address[1] for address in runner.addresses]
    yield receivers
    receivers.release.set()
    await runner.cleanup()


async def resolve(host: str, port: int) -> Sequence[str]:
    return [PUBLIC]


async def post(http: HttpClient, url: str, timeout_s: float = 60) -> HttpAnswer:
    return await http.request("POST", check_url(url, "strict"), headers={}, body=b"hello", timeout_s=timeout_s)


async def test_silent_name_server_stalls_only_its_own_names(receivers: Receivers) -> None:
    """20 of 1,000 names hang. The others are resolved, connected and answered before any deadline passes."""
    released = threading.Event()

    def look_up(name: str) -> Sequence[str]:
        if name.startswith("silent"):
            released.wait(60)
        return [PUBLIC]

    outbound = Outbound(OutboundOptions(PUBLIC), resolve=SystemResolver(60, look_up=look_up))
    url = f":{receivers.ports[0]}/"
    silent = [asyncio.ensure_future(post(outbound.strict_http, f"http://silent{n}.example{url}")) for n in range(20)]
    others = [post(outbound.strict_http, f"http://name{number}.example{url}") for number in range(980)]
    answers = await asyncio.gather(*others)
    assert [answer.status for answer in answers] == [200] * 980
    assert not any(task.done() for task in silent)
    with pytest.raises(NoAnswer) as caught:
        await post(outbound.strict_http, f"http://silent0.example{url}", 0.2)
    assert (caught.value.phase, caught.value.is_sent) == (HttpPhase.RESOLVE, False)
    for task in silent:
        task.cancel()
    await asyncio.gather(*silent, return_exceptions=True)
    assert (await outbound.admin.addresses("mail.example", 25))[0].compressed == PUBLIC
    async with asyncio.timeout(5):
        await outbound.close()
    released.set()


async def test_requests_to_one_host_are_limited_over_all_its_ports(receivers: Receivers) -> None:
    outbound = Outbound(OutboundOptions(PUBLIC, connections_per_host=3), resolve=resolve)
    slow = [
        asyncio.ensure_future(post(outbound.strict_http, f"http://slow.example:{port}/hold"))
        for port in receivers.ports * 5
    ]
    while receivers.busy["slow.example"] < 3:
        await asyncio.sleep(0.01)
    assert (await post(outbound.strict_http, f"http://other.example:{receivers.ports[0]}/")).status == 200
    receivers.release.set()
    assert [answer.status for answer in await asyncio.gather(*slow)] == [200] * 10
    assert receivers.busiest["slow.example"] == 3
    assert not outbound.strict_http._slots._hosts
    await outbound.close()


async def test_idle_connections_are_limited(receivers: Receivers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_MAX", 5)
    outbound = Outbound(OutboundOptions(PUBLIC), resolve=resolve)
    for number in range(20):
        await post(outbound.strict_http, f"http://name{number}.example:{receivers.ports[0]}/")
    assert outbound.strict_http._pool.idle_count == 5
    await outbound.close()
