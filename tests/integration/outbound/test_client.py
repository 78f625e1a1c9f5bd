"""The guarded HTTP client over real sockets. 127.0.0.2 stands for a public address, 127.0.0.3 for a private one."""

import asyncio
import gzip
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trustme
from aiohttp import web

from fieldpost.core.errors import InvalidInput
from fieldpost.outbound.client import HttpAnswer, HttpClient, NoAnswer
from fieldpost.outbound.guard import AddressGuard, Blocked
from fieldpost.outbound.ranges import parse_allowed
from fieldpost.outbound.url import check_url

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2 and 127.0.0.3")

PUBLIC, PRIVATE = "127.0.0.2", "127.0.0.3"
ALLOWED = parse_allowed([PUBLIC])


class Names:
    """A resolver whose answers change as a hostile name server's do; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.asked = 0
        self._answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class Web:
    """Two servers on one port: where requests came in, and what they said."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[tuple[str, str]] = []
        self.hosts: list[str] = []
        self.bodies: list[bytes] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        address = request.transport.get_extra_info("sockname")[0]  # type: ignore[union-attr]
        self.seen.append((address, request.path))
        self.hosts.append(request.host)
        self.bodies.append(await request.read())
        match request.path:
            case "/redirect":
                return web.Response(status=307, headers={"Location": f"http://{PRIVATE}:{self.port}/inside"})
            case "/long":
                return web.Response(body=b"x" * 1_000_000)
            case "/bomb":
                body = gzip.compress(b"\0" * 10_000_000)
                return web.Response(body=body, headers={"Content-Encoding": "gzip"})
            case "/hang":
                await asyncio.Event().wait()
            case "/drip":
                response = web.StreamResponse()
                await response.prepare(request)
                while True:
                    await response.write(b"x")
                    await asyncio.sleep(0.05)
            case "/cut":
                response = web.StreamResponse(headers={"Content-Length": "1000"})
                await response.prepare(request)
                await response.write(b"half")
                request.transport.abort()  # type: ignore[union-attr]
            case "/cookie":
                return web.Response(headers={"Set-Cookie": "a=b"})
        return web.Response(text=request.headers.get("Cookie", "none"))


@pytest.fixture
async def served() -> AsyncIterator[Web]:
    served = Web()
    runner = web.ServerRunner(web.Server(served.handle), shutdown_timeout=0.1)
    await runner.setup()
    first = web.TCPSite(runner, PUBLIC, 0)
    await first.start()
    served.port = runner.addresses[0][1]
    await web.TCPSite(runner, PRIVATE, served.port).start()
    yield served
    await runner.cleanup()


def client(names: Names | None = None, **options: Any) -> HttpClient:
    return HttpClient(AddressGuard("strict", ALLOWED, names or Names([PUBLIC])), **options)


async def ask(http: HttpClient, url: str, **changes: Any) -> HttpAnswer:
    options: dict[str, Any] = {"headers": {}, "body": b"hello", "timeout_s": 30.0} | changes
    try:
        return await http.request("POST", check_url(url, "strict"), **options)
    finally:
        await http.close()


@pytest.mark.dec("DEC-35")
async def test_request_goes_to_the_checked_address_under_its_host_name(served: Web) -> None:
    answer = await ask(client(), f"http://hook.example:{served.port}/x")
    assert (answer.status, answer.is_whole) == (200, True)
    assert served.seen == [(PUBLIC, "/x")]
    assert served.hosts == [f"hook.example:{served.port}"]
    assert served.bodies == [b"hello"]


@pytest.mark.parametrize(
    "host",
    [
        PRIVATE,
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::]",
        "0",
        "①②⑦.⓪.⓪.①",
        "localhost.",
        "[::ffff:127.0.0.3]",
    ],
)
async def test_spellings_of_this_machine_are_refused(served: Web, host: str) -> None:
    """Names are resolved by the machine here, as it reads such spellings."""
    http = HttpClient(AddressGuard("strict", ALLOWED))
    with pytest.raises((Blocked, NoAnswer, InvalidInput)) as caught:
        await ask(http, f"http://{host}:{served.port}/")
    assert served.seen == []
    assert not isinstance(caught.value, NoAnswer) or not caught.value.is_sent


@pytest.mark.dec("DEC-35")
@pytest.mark.parametrize("answer", [[PRIVATE], [PUBLIC, PRIVATE], [PRIVATE, PUBLIC], [PUBLIC, "10.0.0.1"]])
async def test_one_denied_address_among_the_answers_blocks_all(served: Web, answer: list[str]) -> None:
    with pytest.raises(Blocked, match=r"hook\.example may not be reached"):
        await ask(client(Names(answer)), f"http://hook.example:{served.port}/")
    assert served.seen == []


async def test_name_is_resolved_once_for_check_and_connection(served: Web) -> None:
    names = Names([PUBLIC], [PRIVATE])
    http = client(names)
    answer = await http.request(
        "POST", check_url(f"http://hook.example:{served.port}/x", "strict"), headers={}, body=b"", timeout_s=30
    )
    assert (answer.status, served.seen, names.asked) == (200, [(PUBLIC, "/x")], 1)
    await http.close()
    with pytest.raises(Blocked):
        await ask(http, f"http://hook.example:{served.port}/y")
    assert served.seen == [(PUBLIC, "/x")]


async def test_a_redirect_is_an_answer_and_not_followed(served: Web) -> None:
    answer = await ask(client(), f"http://hook.example:{served.port}/redirect")
    assert answer.status == 307
    assert served.seen == [(PUBLIC, "/redirect")]


async def test_proxy_variables_are_not_read(served: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://{PRIVATE}:{served.port}")
    await ask(client(), f"http://hook.example:{served.port}/x")
    assert served.seen == [(PUBLIC, "/x")]


async def test_reading_is_limited_and_nothing_is_unpacked(served: Web) -> None:
    answer = await ask(client(), f"http://hook.example:{served.port}/long")
    assert (answer.status, len(answer.body), answer.is_whole) == (200, 64 * 1024, False)
    answer = await ask(client(), f"http://hook.example:{served.port}/bomb", answer_bytes_max=1000)
    assert (len(answer.body), answer.body[:2]) == (1000, b"\x1f\x8b")


async def test_one_deadline_covers_the_whole_request(served: Web) -> None:
    # The request must be on its way before the time is up.
    async with asyncio.timeout(30):
        with pytest.raises(NoAnswer, match=r"no answer within 1\.5 s") as caught:
            await ask(client(), f"http://hook.example:{served.port}/hang", timeout_s=1.5)
    assert caught.value.is_sent


async def test_dripping_body_is_cut_off_at_the_deadline_and_the_status_counts(served: Web) -> None:
    async with asyncio.timeout(30):
        answer = await ask(client(), f"http://hook.example:{served.port}/drip", timeout_s=1.5)
    assert (answer.status, answer.is_whole, set(answer.body)) == (200, False, {ord("x")})


async def test_truncated_body_does_not_change_the_status(served: Web) -> None:
    answer = await ask(client(), f"http://hook.example:{served.port}/cut")
    assert (answer.status, answer.body, answer.is_whole) == (200, b"half", False)


async def test_refused_connection_is_reported_as_not_sent() -> None:
    with pytest.raises(NoAnswer) as caught:
        await ask(client(), "http://hook.example:1/".replace(":1/", ":1024/"))
    assert not caught.value.is_sent


async def test_no_cookie_is_kept(served: Web) -> None:
    http = client()
    url = f"http://hook.example:{served.port}"
    for path in ("/cookie", "/x"):
        answer = await http.request("POST", check_url(url + path, "strict"), headers={}, body=b"", timeout_s=30)
    assert answer.body == b"none"
    await http.close()


@pytest.mark.threat(20)
@pytest.mark.parametrize("is_trusted", [True, False])
async def test_the_certificate_is_judged_by_the_name_not_by_the_address(is_trusted: bool) -> None:
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hook.example" if is_trusted else "other.example").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    served = Web()
    runner = web.ServerRunner(web.Server(served.handle))
    await runner.setup()
    await web.TCPSite(runner, PUBLIC, 0, ssl_context=serving).start()
    url = f"https://hook.example:{runner.addresses[0][1]}/x"
    if is_trusted:
        assert (await ask(client(tls_context=trusting), url)).status == 200
    else:
        with pytest.raises(NoAnswer, match="certificate"):
            await ask(client(tls_context=trusting), url)
        assert served.seen == []
    await runner.cleanup()
