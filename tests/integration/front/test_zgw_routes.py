"""The routes of the ZGW API: who may call them by which method, and the format of every response, errors included."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest
from structlog.testing import capture_logs

from fieldpost.front.options import FrontOptions
from support.front import Front, served
from support.zgw import BASE, KANAAL, SECRET, Zgw, notification, open_zgw, token

PUBLISHER, CONSUMER, EITHER = ("publisher",), ("consumer",), ("publisher", "consumer")
ANYONE = ("", *EITHER)
ROUTES: dict[str, dict[str, tuple[tuple[str, ...], int]]] = {
    "kanaal": {"GET": (EITHER, 200), "POST": (PUBLISHER, 201)},
    "kanaal/UUID": {"GET": (EITHER, 200), "PUT": (PUBLISHER, 200), "PATCH": (PUBLISHER, 200)},
    "abonnement": {"GET": (EITHER, 200), "POST": (CONSUMER, 201)},
    "abonnement/UUID": {
        "GET": (EITHER, 200),
        "PUT": (CONSUMER, 200),
        "PATCH": (CONSUMER, 200),
        "DELETE": (CONSUMER, 204),
    },
    "notificaties": {"POST": (PUBLISHER, 201)},
    "schema/openapi.yaml": {"GET": (ANYONE, 200)},
    "schema/openapi.json": {"GET": (ANYONE, 200)},
}
"""The table of the standard: by path and method, the clients that may call it, and the status that they get."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "DELETE")
ERROR = {"type", "code", "title", "status", "detail", "instance"}


@pytest.fixture
async def zgw(front: Front) -> AsyncIterator[Zgw]:
    async with open_zgw(front) as opened:
        yield opened


@pytest.mark.req("ZGW-10", "DEC-63")
@pytest.mark.threat(1)
async def test_each_route_requires_its_scope(zgw: Zgw) -> None:
    numbers = itertools.count()
    bodies: dict[str, Any] = {"notificaties": notification(), "kanaal/UUID": KANAAL}
    bodies["abonnement/UUID"] = zgw.abonnement()
    kanaal = await zgw.create("kanaal", KANAAL)
    abonnement = await zgw.create("abonnement", zgw.abonnement(), client="consumer")
    async with served(zgw.app) as url, httpx2.AsyncClient(base_url=f"{url}{BASE}/") as http:
        for path, methods in ROUTES.items():
            made = {"kanaal/UUID": kanaal, "abonnement/UUID": abonnement}.get(path)
            target = path if made is None else path.replace("UUID", made["url"].rpartition("/")[2])
            bodies |= {"kanaal": {"naam": f"kanaal-{next(numbers)}"}, "abonnement": zgw.abonnement()}
            for method, client in itertools.product(METHODS, ("", "publisher", "consumer")):
                given = token(client, SECRET, zgw.front.clock.now())
                answer = await http.request(
                    method,
                    target,
                    json=bodies.get(path) if method in ("POST", "PUT", "PATCH") else None,
                    headers={"Authorization": f"Bearer {given}"} if client else {},
                )
                told = f"{method} {path} by {client or 'nobody'}: {answer.status_code} {answer.text}"
                allowed, status = methods.get("GET" if method == "HEAD" else method, ((), 405))
                if status != 405 and client not in allowed:
                    status = 403
                elif (path, client) == ("abonnement/UUID", "publisher") and status == 200:
                    status = 404  # it may read abonnementen, and this one is another client's
                assert answer.status_code == status, told
                assert answer.headers["api-version"] == "1.0.1", told
                if method != "HEAD":
                    check_format(answer, told)
                if status == 405:
                    names = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
                    assert answer.headers["allow"] == ", ".join(names), told
                if status == 201 and path != "notificaties":
                    assert answer.headers["location"] == answer.json()["url"], told


def check_format(answer: Any, told: str) -> None:
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", told
        assert answer.json().keys() == (ERROR | {"invalidParams"} if answer.status_code == 400 else ERROR), told
        assert answer.json()["status"] == answer.status_code, told
    elif answer.status_code == 204:
        assert answer.content == b"", told
    elif not answer.url.path.endswith("yaml"):
        assert answer.headers["content-type"] == "application/json", told
        assert isinstance(answer.json(), dict | list), told


GET = f"GET {BASE}/kanaal HTTP/1.1\r\nHost: central\r\nConnection: close\r\n"
POST = f"POST {BASE}/notificaties HTTP/1.1\r\nHost: central\r\nConnection: close\r\nContent-Type: application/json\r\n"


@pytest.mark.bad_input(16, 53)
async def test_requests_that_never_reach_a_route_are_answered_in_the_format_too(zgw: Zgw) -> None:
    given = f"Authorization: Bearer {token('both', SECRET, zgw.front.clock.now())}\r\n"
    body = msgspec.json.encode(notification()).decode()
    chunked = f"{POST}Transfer-Encoding: chunked\r\n"
    requests = {
        "a long header": (f"{GET}{given}X-Long: {'x' * 65536}\r\n\r\n", 431, "request_head_too_large"),
        "a long token": (f"{GET}Authorization: Bearer {'x' * 100_000}\r\n\r\n", 431, "request_head_too_large"),
        "a long query": (GET.replace(" HTTP", f"?naam={'x' * 65536} HTTP"), 431, "request_head_too_large"),
        "two hosts": (f"{GET}Host: other\r\n{given}\r\n", 400, "invalid"),
        "a broken header": (f"{GET}No colon\r\n{given}\r\n", 400, "invalid"),
        "two lengths": (f"{chunked}Content-Length: 5\r\n{given}\r\n", 400, "invalid"),
        "an empty token": (f"{GET}Authorization: \r\n\r\n", 403, "not_authenticated"),
        "a token in a trailer": (
            f"{chunked}\r\n{len(body):x}\r\n{body}\r\n0\r\n{given}\r\n",
            403,
            "not_authenticated",
        ),
        "another path": (f"GET /api/v1/lists HTTP/1.1\r\nHost: central\r\nX-Long: {'x' * 65536}\r\n\r\n", 431, "http."),
    }
    async with served(zgw.app, FrontOptions(body_grace_s=0.5)) as hasty:
        incomplete = f"{POST}Content-Length: 5000\r\n{given}\r\n{{"
        version, got, content = await raw_answer(hasty, incomplete.encode())
        assert (version, got, content["code"], content.keys()) == ("1.0.1", 408, "request_timeout", ERROR)
    async with served(zgw.app) as url:
        for what, (request, status, code) in requests.items():
            version, got, content = await raw_answer(url, request.encode())
            assert (got, content["status"]) == (status, status), what
            assert str(content["code"]).startswith(code), what
            if what == "another path":
                assert version == "", what
                continue
            assert version == "1.0.1", what
            assert content.keys() == (ERROR | {"invalidParams"} if status == 400 else ERROR), what
    assert await zgw.front.centre.rows("select event_id from events") == []


async def raw_answer(url: str, request: bytes) -> tuple[str, int, dict[str, Any]]:
    """API-version, status and body of the answer to these bytes; the connection ends with it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    async with asyncio.timeout(20):
        writer.write(request)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, *lines = head.decode().lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return headers.get("api-version", ""), int(first.split()[1]), msgspec.json.decode(body, type=dict[str, Any])


@pytest.mark.threat(27)
async def test_a_bug_is_answered_in_the_format_without_internals(zgw: Zgw) -> None:
    await zgw.front.centre.execute("alter table topics rename column documentation_url to a_column_nobody_knows")
    async with zgw.client() as client:
        with capture_logs() as logs:
            answer = await client.get("kanaal")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.headers["api-version"] == "1.0.1"
    check_format(answer, answer.text)
    assert not any(word in answer.text.lower() for word in ("traceback", "select", "column", "topics", "sqlalchemy"))
    [line] = [line for line in logs if line["event"] == "request.failed"]
    assert line["correlation_id"] in answer.text


async def test_client_beyond_its_quota_is_told_how_long_to_wait(front: Front) -> None:
    async with open_zgw(front, limits=FrontOptions(items_per_s=1.0, burst_s=2.0)) as zgw, zgw.client() as client:
        await zgw.create("kanaal", KANAAL)
        answers = [await client.post("notificaties", json=notification()) for _ in range(5)]
    assert {answer.status_code for answer in answers} == {201, 429}
    answer = answers[-1]
    assert answer.json()["code"] == "throttled"
    assert int(answer.headers["retry-after"]) > 0
    check_format(answer, answer.text)


@pytest.mark.req("DEC-63")
async def test_the_document_is_read_by_anyone_at_a_limited_rate(zgw: Zgw) -> None:
    async with zgw.bare() as nobody:
        answers = [await nobody.get("schema/openapi.yaml") for _ in range(502)]
        assert {answer.status_code for answer in answers[:500]} == {200}
        assert (answers[-1].status_code, answers[-1].json()["code"]) == (429, "throttled")
        zgw.front.clock.advance(1)
        assert (await nobody.get("schema/openapi.json")).status_code == 200
    async with zgw.client() as client:
        assert (await client.get("kanaal")).status_code == 200
