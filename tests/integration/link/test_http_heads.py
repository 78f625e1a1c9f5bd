"""Request heads made of pieces that break parsers: every one gets an answer of HTTP or the end, and never a bug."""

import asyncio
import re

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fieldpost.front.options import FrontOptions
from fieldpost.testing import ManualClock
from support.front import open_front, served
from support.line import without_bugs

methods = st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"get", b"G\x00T", b"", b"CONNECT", b"PRI"])
paths = st.sampled_from(
    [b"/healthz", b"/", b"*", b"http://x/healthz", b"/../x", b"/%zz", b"/\xff", b"", b"/link/v1/data", b"//", b"/a b"]
)
versions = st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9.9", b"HTTP/2.0", b"", b"http/1.1"])
names = st.sampled_from(
    [
        b"Host",
        b"host",
        b"Content-Length",
        b"Transfer-Encoding",
        b"Upgrade",
        b"Connection",
        b"Expect",
        b"X-\x00",
        b"",
        b" H",
    ]
)
contents = st.sampled_from(
    [
        b"x",
        b"",
        b"-1",
        b"99999999999999999999",
        b"chunked",
        b"websocket",
        b"\xff",
        b"a\x00b",
        b"100-continue",
        b"upgrade",
    ]
)
endings = st.sampled_from([b"\r\n", b"\n", b"\r", b"\r\n "])
headers = st.builds(lambda name, content, end: name + b": " + content + end, names, contents, endings)
heads = st.builds(
    lambda method, path, version, lines, end: b" ".join((method, path, version)) + b"\r\n" + b"".join(lines) + end,
    methods,
    paths,
    versions,
    st.lists(headers, max_size=5),
    st.sampled_from([b"\r\n", b"\n", b"0\r\n\r\n", b"\r\nGET / HTTP/1.1\r\n\r\n"]),
)


@pytest.mark.threat(2, 27)
@pytest.mark.bad_input(53)
def test_any_head_is_answered_or_ends_and_central_stays_alive(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(heads, min_size=1, max_size=3))
    def attack(found: list[bytes]) -> None:
        requests.extend(found)

    requests: list[bytes] = []
    attack()

    async def run() -> None:
        options = FrontOptions(header_s=0.3, body_grace_s=0.3, connections_per_address=1000)
        async with open_front(sqlite_url, ManualClock()) as front, served(front.app, options) as url:
            host, port = re.findall(r"//([\d.]+):(\d+)", url)[0]
            limit = asyncio.Semaphore(32)

            async def ask(request: bytes) -> bytes:
                async with limit:
                    reader, writer = await asyncio.open_connection(host, int(port))
                    try:
                        writer.write(request)
                        async with asyncio.timeout(20):
                            return await reader.read()
                    except ConnectionError:
                        return b""
                    finally:
                        writer.transport.abort()

            for answer in await asyncio.gather(*map(ask, requests)):
                statuses = re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)
                assert not answer or statuses, answer[:200]
                assert b"500" not in statuses, answer[:500]
            async with aiohttp.ClientSession() as http, http.get(f"{url}/healthz") as alive:
                assert alive.status == 200

    with without_bugs(caplog):
        asyncio.run(run())
