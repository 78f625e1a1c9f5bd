"""What every answer has in common: its headers, its limits, and what it says when something is wrong."""

import asyncio
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from support.front import Front, served


@pytest.mark.threat(11)
@pytest.mark.parametrize("path", ["/login", "/", "/healthz", "/api/v1/lists", "/nowhere", "/static/console.css"])
async def test_every_response_has_the_security_headers(front: Front, path: str) -> None:
    async with front.client() as client:
        headers = (await client.get(path, headers={"accept": "text/html"})).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


@pytest.mark.threat(27)
async def test_bug_is_reported_as_a_correlation_id_only(front: Front) -> None:
    await front.centre.execute("alter table list_targets rename column address to a_column_nobody_knows")
    for caller, path, accept in (
        ("viewer", "/api/v1/lists", "application/json"),
        ("viewer", "/api/v1/lists", "text/html"),
    ):
        with capture_logs() as logs:
            async with front.client(caller) as client:
                answer = await client.get(path, headers={"accept": accept})
        told = answer.text.lower()
        assert answer.status_code == 500
        assert not any(word in told for word in ("traceback", "select", "column", "list_targets", "sqlalchemy", ".py"))
        line = next(line for line in logs if line["event"] == "request.failed")
        assert line["correlation_id"] in answer.text
        assert line["exc_info"] is not None


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"{}", {"content-type": "text/plain"}, 415, "http.content_type"),
        (b"{}", {}, 415, "http.content_type"),
        (b"{}", {"content-type": "application/json; charset=utf-7"}, 415, "http.content_type"),
        (b"", {"content-type": "application/json"}, 400, "json.malformed"),
        (b"{", {"content-type": "application/json"}, 400, "json.malformed"),
        (b'{"name": "a", "name": "b"}', {"content-type": "application/json"}, 400, "json.duplicate_key"),
        (b'{"name": NaN}', {"content-type": "application/json"}, 400, "json.number"),
        (b'{"name": "\xff"}', {"content-type": "application/json"}, 400, "json.not_utf8"),
        (b"[" * 100_000, {"content-type": "application/json"}, 400, "json.too_deep"),
        (b"[]", {"content-type": "application/json; charset=utf-8"}, 422, "body.invalid"),
        (b'{"name": "\\ud800"}', {"content-type": "application/json"}, 422, "body.invalid"),
        (b" " * (1024 * 1024 + 1), {"content-type": "application/json"}, 413, "http.too_large"),
    ],
)
async def test_unreadable_body_is_rejected(
    front: Front, content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    async with front.client("admin") as client:
        answer = await client.post("/api/v1/sites", content=content, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_body_without_a_stated_length_is_cut_off_at_the_limit(front: Front) -> None:
    async def endless():  # type: ignore[no-untyped-def]
        for _ in range(64):
            yield b" " * 64 * 1024

    async with front.client("admin") as client:
        answer = await client.post("/api/v1/sites", content=endless(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


async def test_a_method_override_is_ignored(front: Front) -> None:
    async with front.client("admin") as client:
        await client.post("/api/v1/lists", json={"name": "ops", "targets": ["a@example.org"]})
        answer = await client.get("/api/v1/lists/ops", headers={"X-HTTP-Method-Override": "DELETE"})
        assert answer.status_code == 200
        assert (await client.get("/api/v1/lists/ops")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/api/v1/nothing", 404), ("PUT", "/api/v1/lists", 405), ("GET", "/link/v1/submit", 405)],
)
async def test_missing_page_is_a_problem_too(front: Front, method: str, path: str, status: int) -> None:
    async with front.client("admin") as client:
        answer = await client.request(method, path, headers={"accept": "text/html"})
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_liveness_ignores_the_store_and_readiness_checks_it(front: Front) -> None:
    async with front.client() as client:
        assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]


@pytest.mark.parametrize("name", ["../auth.py", "..%2f..%2fauth.py", "vendor/manifest.json", "", "console.css/"])
async def test_only_static_files_of_the_console_are_served(front: Front, name: str) -> None:
    async with front.client() as client:
        assert (await client.get(f"/static/{name}")).status_code == 404


@pytest.mark.bad_input(53)
async def test_invalid_headers_are_rejected_with_their_own_status(front: Front) -> None:
    token = f"Authorization: Bearer {front.tokens['admin']}"
    body = b'{"name":"l","targets":["a@example.org"]}'
    post = f"POST /api/v1/lists HTTP/1.1\r\nHost: central\r\nContent-Length: {len(body)}\r\n{token}\r\n"
    chunked = "POST /api/v1/lists HTTP/1.1\r\nHost: central\r\nTransfer-Encoding: chunked\r\n"
    json = "Content-Type: application/json\r\n"
    get = "GET /api/v1/lists HTTP/1.1\r\nHost: central\r\n"
    requests = [
        (f"{get}\r\n".encode(), 401),
        (f"{get}Authorization: \r\n\r\n".encode(), 401),
        (f"{get}{token}\r\n{token}\r\n\r\n".encode(), 400),
        (f"{get}{token}\r\nX-Long: {'x' * 65536}\r\n\r\n".encode(), 431),
        (f"{post}Content-Type: text/yaml\r\n\r\n".encode() + body, 415),
        (f"{post}\r\n".encode() + body, 415),
        (f"{post}Content-Type: application/json; charset=utf-7\r\n\r\n".encode() + body, 415),
        # A trailer is no header: a token that comes after the body opens nothing.
        (f"{chunked}{json}\r\n{len(body):x}\r\n".encode() + body + f"\r\n0\r\n{token}\r\n\r\n".encode(), 401),
        # What a header says of the method counts for nothing: this only looks.
        (f"{get}{token}\r\nX-HTTP-Method-Override: DELETE\r\n\r\n".encode(), 200),
    ]
    async with served(front.app) as url:
        for request, status in requests:
            assert await answer_to(url, request) == status, request[:200]
    assert await front.operate.lists.all() == [], "nothing was changed"


async def answer_to(url: str, request: bytes) -> int:
    """The status that a request gets, byte by byte as it stands."""
    port = urlsplit(url).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(20):
        writer.write(request)
        line = await reader.readline()
    writer.close()
    return int(line.split()[1])
