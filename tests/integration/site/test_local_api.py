"""The script API for other languages: what it does, whom it lets in, and that its description is true."""

import asyncio
import http
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fieldpost.clock import SystemClock
from fieldpost.core.errors import ConfigError
from fieldpost.core.ids import is_id
from fieldpost.core.sites.message import Message
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.config.folder import read_folder
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.local import handlers
from fieldpost.site.local.guard import BODY_BYTES_MAX, ensure_token
from fieldpost.site.local.routes import ROUTES, document, operation_id
from fieldpost.site.local.server import LocalApi
from fieldpost.testing import ManualClock
from support.disks import fill_up, small_disk
from support.local_api import Local, misfit, serving
from support.plant import Plant
from support.ports import free_port
from support.running_central import until
from support.site_folders import make_site


@pytest.fixture
async def local(plant: Plant) -> AsyncIterator[Local]:
    async with serving(plant.folder) as local:
        yield local


NOTE = {"list_name": "ops", "subject": "Pump 3 stopped", "body": "No flow."}


@pytest.mark.req("API-01", "API-04")
async def test_http_client_sends_a_notification_and_reads_its_status(local: Local, plant: Plant) -> None:
    sent = await local("POST", "/v1/notifications", {**NOTE, "instance": "pump-3", "script": "watch.sh"})
    assert sent.status == 201
    assert is_id(sent.body["notification_id"])
    message = plant.site._buffer.find(sent.body["notification_id"])
    assert isinstance(message, Message)
    item = json.loads(message.payload)
    assert (item["list_name"], item["subject"], item["body"]) == ("ops", "Pump 3 stopped", "No flow.")
    assert (item["instance"], item["script"]) == ("pump-3", "watch.sh")
    status = await local("GET", f"/v1/notifications/{sent.body['notification_id']}")
    assert (status.status, status.body["status"]) == (200, "forwarding")


async def test_the_same_key_is_the_same_notification_and_with_other_content_a_conflict(local: Local) -> None:
    first = await local("POST", "/v1/notifications", {**NOTE, "key": "leak-17"})
    again = await local("POST", "/v1/notifications", {**NOTE, "key": "leak-17"})
    other = await local("POST", "/v1/notifications", {**NOTE, "body": "other", "key": "leak-17"})
    assert first.body == again.body
    assert (other.status, other.body["code"]) == (409, "message.key_used")


@pytest.mark.req("API-06", "API-07")
async def test_calls_and_writes_are_made_and_their_status_is_answered_without_central(
    local: Local, plant: Plant
) -> None:
    call = {"method": "POST", "path": "/orders", "query": {"dry": False}, "json": {"part": "seal"}, "key": "o-1"}
    made = await local("POST", "/v1/external/erp/calls", call)
    assert (made.status, made.body["status"], made.body["http_status"]) == (201, "delivered", 200)
    [request] = plant.server.received()
    assert (request.target, request.body) == ("/orders?dry=false", b'{"part":"seal"}')
    assert (await local("POST", "/v1/external/erp/calls", call)).body["call_id"] == made.body["call_id"]
    assert len(plant.server.received()) == 1

    waiting = await local("POST", "/v1/external/dead/calls", {"method": "POST", "path": "/", "body_base64": "/wA="})
    assert (waiting.status, waiting.body["status"]) == (201, "retrying")
    written = await local(
        "POST", "/v1/databases/plant/writes", {"statement": "count", "parameters": {"unit": "pump-3", "n": 17}}
    )
    assert (written.status, written.body["status"]) == (201, "delivered")
    assert plant.query("SELECT unit, n FROM counts") == [("pump-3", 17)]

    one = await local("GET", f"/v1/calls/{waiting.body['call_id']}")
    assert (one.body["status"], one.body["target_summary"]) == ("retrying", "dead POST /")
    page = await local("GET", "/v1/calls", limit="2")
    rest = await local("GET", "/v1/calls", after=str(page.body["next_after"]))
    ids = [record["call_id"] for record in page.body["calls"] + rest.body["calls"]]
    assert ids == [answer.body["call_id"] for answer in (made, waiting, written)]


@pytest.mark.req("API-08")
async def test_permanently_rejected_call_is_a_problem_with_the_reason(local: Local, plant: Plant) -> None:
    plant.server.on().answer(422, b"no such part")
    answer = await local("POST", "/v1/external/erp/calls", {"method": "POST", "path": "/orders"})
    assert (answer.status, answer.body["http_status"]) == (502, 422)
    record = await local("GET", f"/v1/calls/{answer.body['call_id']}")
    assert record.body["status"] == "failed"


@pytest.mark.req("SF-20")
async def test_the_event_log_is_read_by_kind_severity_time_words_and_page_by_page(local: Local, plant: Plant) -> None:
    for _ in range(3):
        await local("POST", "/v1/external/dead/calls", {"method": "POST", "path": "/orders", "instance": "pump-3"})
    plant.server.on().answer(500)
    await local("POST", "/v1/external/erp/calls", {"method": "POST", "path": "/other"})
    every = (await local("GET", "/v1/events")).body["events"]
    assert {entry["kind"] for entry in every} == {"queued", "retried"}
    assert [entry["sequence"] for entry in every] == sorted((e["sequence"] for e in every), reverse=True)
    assert {e["kind"] for e in (await local("GET", "/v1/events", kind="queued")).body["events"]} == {"queued"}
    assert len((await local("GET", "/v1/events", severity="warning")).body["events"]) == 4
    assert len((await local("GET", "/v1/events", instance="pump-3", kind="queued")).body["events"]) == 3
    assert len((await local("GET", "/v1/events", words="ERP other post", kind="queued")).body["events"]) == 1
    assert (await local("GET", "/v1/events", to="2020-01-01T00:00:00Z")).body == {"events": [], "next_before": None}
    first = (await local("GET", "/v1/events", limit="5")).body
    second = (await local("GET", "/v1/events", limit="5", before=str(first["next_before"]))).body
    assert first["events"] + second["events"] == every
    assert second["next_before"] is None


async def test_state_of_the_site_can_be_queried(local: Local) -> None:
    await local("POST", "/v1/notifications", NOTE)
    local.health = ForwardHealth(is_ok=False, error_code="link.unreachable", error="central cannot be reached")
    answer = await local("GET", "/v1/site")
    assert (answer.body["waiting"], answer.body["parked"]) == ({"notification": 1}, 0)
    assert (answer.body["link"]["is_ok"], answer.body["link"]["error_code"]) == (False, "link.unreachable")


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "field"),
    [
        ("/v1/notifications", {**NOTE, "subject": "two\nlines"}, 422, "text.line_break", "subject"),
        ("/v1/notifications", {**NOTE, "list_name": ""}, 422, None, "list_name"),
        ("/v1/notifications", {"list_name": "ops"}, 422, "body.invalid", "subject"),
        ("/v1/notifications", {**NOTE, "recipient": "x"}, 422, "body.invalid", "recipient"),
        ("/v1/notifications", {**NOTE, "body": 17}, 422, "body.invalid", "body"),
        ("/v1/notifications", {**NOTE, "body": "\0"}, 422, "text.nul", "body"),
        ("/v1/external/nobody/calls", {"method": "GET", "path": "/"}, 422, None, None),
        ("/v1/external/erp/calls", {"method": "TRACE", "path": "/"}, 422, "call.method", "method"),
        (
            "/v1/external/erp/calls",
            {"method": "POST", "path": "/", "body_base64": "?"},
            422,
            "call.body",
            "body_base64",
        ),
        ("/v1/databases/plant/writes", {"statement": "DROP TABLE counts"}, 422, None, None),
    ],
)
@pytest.mark.bad_input(2, 3, 6, 8)
async def test_bad_input_is_a_problem_with_its_field_and_nothing_is_written(
    local: Local, plant: Plant, path: str, body: object, status: int, code: str | None, field: str | None
) -> None:
    answer = await local("POST", path, body)
    assert answer.status == status
    assert code in (None, answer.body["code"])
    assert field in (None, answer.body["field"])
    assert plant.site._buffer.depth().waiting == {}
    assert plant.site.tracking.changed_since(0, 10) == []
    assert plant.server.received(0) == []


@pytest.mark.parametrize(
    ("data", "content_type", "status", "code"),
    [
        (b"{", "application/json", 400, "json.malformed"),
        (b'{"list_name":"a","list_name":"b"}', "application/json", 400, "json.duplicate_key"),
        (b'{"a":NaN}', "application/json", 400, "json.number"),
        (b"[" * 100_000, "application/json", 400, "json.too_deep"),
        (b"{}", "text/plain", 415, "http.content_type"),
        (b"{}", "application/json; charset=utf-7", 415, "http.content_type"),
        (b" " * (BODY_BYTES_MAX + 1), "application/json", 413, "http.too_large"),
    ],
)
async def test_a_malformed_body_is_refused(
    local: Local, data: bytes, content_type: str, status: int, code: str
) -> None:
    headers = {"Content-Type": content_type}
    answer = await local.over_port("POST", "/v1/notifications", token=local.token, data=data, **headers)
    assert (answer.status, answer.body["code"]) == (status, code)


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "1001"},
        {"limit": "-1"},
        {"limit": "9" * 30},
        {"before": "x"},
        {"severity": "fatal"},
        {"category": "gossip"},
        {"from": "yesterday"},
        {"colour": "red"},
    ],
)
async def test_invalid_query_is_rejected_by_name(local: Local, query: dict[str, str]) -> None:
    answer = await local("GET", "/v1/events", **query)
    assert (answer.status, answer.body["field"]) == (422, next(iter(query)))


async def test_a_token_that_is_not_utf8_is_refused(local: Local) -> None:
    port = int(local.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET /v1/site HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer \xff\xfe\r\n\r\n"
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"auth.unknown" in answer


async def test_port_requires_its_token(local: Local) -> None:
    wrong = local.token[:-1] + ("a" if local.token[-1] != "a" else "b")
    for method, path in (("POST", "/v1/notifications"), ("GET", "/v1/site"), ("GET", "/v1/nothing")):
        for token in (None, "", wrong, local.token.upper()):
            answer = await local.over_port(method, path, token=token)
            assert answer.status == 401
            assert answer.body["code"] in ("auth.missing", "auth.unknown")
            assert local.token not in json.dumps(answer.body)
    assert (await local.over_port("GET", "/v1/site", Authorization=f"Basic {local.token}")).status == 401
    assert (await local.over_port("GET", "/v1/site", token=local.token)).status == 200


@pytest.mark.threat(10)
async def test_a_page_in_a_browser_is_refused_even_with_the_token(local: Local) -> None:
    """By its name (DNS rebinding) and by its origin; and no answer tells a browser that it may read it."""
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "127.0.0.1@evil.example"):
        answer = await local.over_port("GET", "/v1/site", token=local.token, Host=host)
        assert (answer.status, answer.body["code"]) == (403, "local.host")
    answer = await local.over_port("GET", "/v1/site", token=local.token, Origin="http://127.0.0.1:3000")
    assert (answer.status, answer.body["code"]) == (403, "local.origin")
    preflight = await local.over_port("OPTIONS", "/v1/notifications", Origin="http://evil.example")
    assert preflight.status == 403
    for answer in (preflight, await local.over_port("GET", "/v1/site", token=local.token, Host="localhost")):
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


async def test_socket_and_token_are_private_to_the_user_of_the_agent(local: Local) -> None:
    assert stat.S_IMODE((local.folder / "agent.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE((local.folder / "local.token").stat().st_mode) == 0o600
    assert local.url.startswith("http://127.0.0.1:")
    with socket.socket() as elsewhere:
        # On any other address of this machine nobody listens.
        assert elsewhere.connect_ex(("127.0.0.2", int(local.url.rpartition(":")[2]))) != 0


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token = ensure_token(tmp_path)
    assert ensure_token(tmp_path) == token
    os.chmod(tmp_path / "local.token", 0o644)
    with pytest.raises(ConfigError) as caught:
        ensure_token(tmp_path)
    assert caught.value.code == "local.token_open"
    os.chmod(tmp_path / "local.token", 0o600)
    (tmp_path / "local.token").write_text("x")
    with pytest.raises(ConfigError):
        ensure_token(tmp_path)


def test_empty_token_file_is_recreated(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        fill_up(disk)
        with pytest.raises(ConfigError, match="No space left"):
            ensure_token(disk)
        (disk / "filler").unlink()
        assert ensure_token(disk) == ensure_token(disk) == (disk / "local.token").read_text().strip()


async def test_slow_calls_delay_no_notification_and_are_limited(
    local: Local, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "WAITING_MAX", 2)
    gate = plant.server.gate()
    plant.server.on().answer(200).wait(gate)
    call = {"method": "POST", "path": "/orders"}
    slow = [asyncio.create_task(local("POST", "/v1/external/erp/calls", call)) for _ in range(2)]
    await asyncio.to_thread(plant.server.received, 2)
    refused = await local("POST", "/v1/external/erp/calls", call)
    assert (refused.status, refused.body["code"]) == (503, "local.busy")
    assert (await local("POST", "/v1/notifications", NOTE)).status == 201
    gate.open()
    assert [answer.status for answer in await asyncio.gather(*slow)] == [201, 201]


async def test_the_description_has_every_route_and_no_other(local: Local) -> None:
    answer = await local.over_port("GET", "/openapi.json")
    assert answer.status == 200
    assert answer.body == document()
    described = {(method.upper(), path) for path, ways in answer.body["paths"].items() for method in ways}
    assert described == {(route.method, route.path) for route in ROUTES}
    assert len({operation_id(route) for route in ROUTES}) == len(ROUTES)
    text = json.dumps(answer.body)
    references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references == set(answer.body["components"]["schemas"])
    for ways in answer.body["paths"].values():
        for operation in ways.values():
            assert operation["summary"]
            assert all(int(status) in set(http.HTTPStatus) for status in operation["responses"])


def test_check_against_the_description_detects_a_deviation() -> None:
    schemas = document()["components"]["schemas"]
    reference = {"$ref": "#/components/schemas/SentNotification"}
    assert misfit({"notification_id": "x"}, reference, schemas, "$") is None
    assert misfit({"notification_id": 1}, reference, schemas, "$")
    assert misfit({}, reference, schemas, "$")
    assert misfit({"notification_id": "x", "more": 1}, reference, schemas, "$")


async def test_unknown_paths_and_ids_are_problems_too(local: Local) -> None:
    assert (await local("GET", "/v1/nothing")).body["code"] == "http.no_such_path"
    assert (await local("DELETE", "/v1/notifications")).body["code"] == "http.method"
    missing = await local("GET", "/v1/calls/01a1de57-9e44-7863-858d-f15d85e1a8b2")
    assert (missing.status, missing.body["code"]) == (404, "call.unknown")
    assert missing.body["type"] == "urn:fieldpost:error:call.unknown"
    bad = await local("GET", "/v1/calls/x")
    assert (bad.status, bad.body["code"]) == (422, "call.bad_id")


async def test_occupied_port_is_waited_for_and_the_socket_is_served_meanwhile(tmp_path: Path) -> None:
    make_site(tmp_path / "site").close()
    clock = ManualClock()
    with socket.socket() as taken:
        port = free_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with (tmp_path / "site" / "site.toml").open("a") as file:
            file.write(f"\n[local]\nport = {port}\n")
        folder = read_folder(tmp_path / "site")
        buffer = Buffer(folder.buffer_path)
        api = LocalApi(folder, buffer, clock, ForwardHealth)
        stopping = asyncio.Event()
        running = asyncio.create_task(api.run(stopping))
        await clock.wait_sleepers()
        assert api.addresses == (str(tmp_path / "site" / "agent.sock"),)
    clock.advance(10)
    await until(lambda: f"http://127.0.0.1:{port}" in api.addresses, what="the port to be served")
    stopping.set()
    await running
    await api.close()
    buffer.close()
    assert not (tmp_path / "site" / "agent.sock").exists()


async def test_agent_serves_the_api_on_the_socket_only_by_default(tmp_path: Path) -> None:
    site = make_site(tmp_path / "site")
    folder = read_folder(tmp_path / "site")
    site.close()
    assert (folder.local.socket, folder.local.port) == (True, 0)
    buffer = Buffer(folder.buffer_path)
    api = LocalApi(folder, buffer, SystemClock(), ForwardHealth)
    assert [is_wanted for _, is_wanted in api._listeners()] == [True, False]
    await api.close()
    buffer.close()
