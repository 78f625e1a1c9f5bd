"""Calls and writes as a script makes them: what it gets back, what its site remembers, and what is left to the agent.

Central is unreachable in all of these: a site on its own answers for its cached calls.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fieldpost import Site
from fieldpost.core.errors import InvalidInput, NotFound, OperationFailed
from fieldpost.core.ids import is_id
from fieldpost.core.sites.message import CallStatus, Category, MessageStatus
from fieldpost.site.forwarding.attempt import CLAIM_MARGIN_S
from support.plant import INTERVAL_S, RETRIES_MAX, TIMEOUT_S, Plant


@pytest.mark.req("API-07", "SF-01")
def test_script_can_send_call_and_write_in_one_line_each(plant: Plant) -> None:
    notification = plant.site.notify.to("ops").send("s", "b")
    call = plant.site.external("dead").call("POST", "/orders", json={"n": 1})
    plant.query("DROP TABLE counts")
    plant.query("CREATE TABLE counts (call_id TEXT, unit TEXT, n INTEGER)")
    plant.query("PRAGMA journal_mode = DELETE")
    write = plant.site.database("plant").write("count", {"unit": "pump-3", "n": 17})
    assert is_id(notification)
    assert is_id(call)
    assert is_id(write)
    waiting = plant.site._buffer.depth().waiting
    assert waiting == {Category.NOTIFICATION: 1, Category.EXTERNAL_CALL: 1}
    assert plant.query("SELECT unit, n FROM counts") == [("pump-3", 17)]


@pytest.mark.req("SF-02", "SF-03", "TRK-03", "TRK-04", "TRK-06", "DEC-25")
def test_a_call_that_arrives_at_once_leaves_a_delivered_record_and_nothing_in_the_buffer(plant: Plant) -> None:
    started = plant.clock.now()
    call_id = plant.site.external("erp").call(
        "POST", "/orders", query={"dry": False}, json={"part": "seal"}, instance="pump-3", script="order.py"
    )
    [request] = plant.server.received()
    assert (request.method, request.target, request.body) == ("POST", "/orders?dry=false", b'{"part":"seal"}')
    assert request.headers["idempotency-key"] == call_id
    assert plant.message(call_id) is None
    record = plant.record(call_id)
    assert (record.category, record.target_summary, record.status) == (
        Category.EXTERNAL_CALL,
        "erp POST /orders",
        CallStatus.DELIVERED,
    )
    assert (record.retry_count, record.last_error, record.http_status) == (0, None, 200)
    assert (record.instance, record.script) == ("pump-3", "order.py")
    assert (record.created_at, record.updated_at, record.terminal_at) == (started, started, started)


@pytest.mark.req("SF-02", "TRK-05", "TRK-06")
def test_a_write_that_arrives_at_once_is_committed_there_and_delivered_here(plant: Plant) -> None:
    call_id = plant.site.database("plant").write("count", {"unit": "pump-3", "n": 17})
    assert plant.query("SELECT * FROM counts") == [(call_id, "pump-3", 17)]
    assert plant.message(call_id) is None
    record = plant.record(call_id)
    assert (record.category, record.target_summary) == (Category.DATABASE_WRITE, "plant")
    assert record.is_delivered


@pytest.mark.req("DEC-25")
def test_call_is_buffered_and_claimed_before_its_first_attempt(plant: Plant) -> None:
    gate = plant.server.gate()
    plant.server.on().answer(200).wait(gate)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(plant.site.external("erp").call, "POST", "/orders")
        plant.server.received()
        [(call_id,)] = plant.site._buffer.read(lambda cursor: cursor.execute("SELECT message_id FROM calls").fetchall())
        assert plant.record(str(call_id)).status is CallStatus.PENDING
        assert plant.sweep() == 0, "the caller holds it"
        gate.open()
        assert call.result() == call_id
    assert plant.message(str(call_id)) is None
    assert len(plant.server.requests) == 1


@pytest.mark.req("SF-04", "TRK-07", "SF-13")
def test_call_that_fails_temporarily_is_kept_and_due_after_the_interval(plant: Plant) -> None:
    plant.server.on().answer(503, "busy").times(1)
    call_id = plant.site.external("erp").call("POST", "/orders", json={"n": 1})
    message = plant.message(call_id)
    assert message is not None
    assert (message.status, message.retry_count) == (MessageStatus.RETRYING, 0)
    assert (message.last_attempt_at, message.last_error) == (plant.clock.now(), message.last_error)
    record = plant.record(call_id)
    assert (record.status, record.retry_count, record.http_status) == (CallStatus.RETRYING, 0, 503)
    assert record.terminal_at is None
    assert "busy" in (record.last_error or "")
    assert plant.sweep() == 0
    plant.clock.advance(INTERVAL_S)
    assert plant.sweep() == 1
    assert plant.record(call_id).is_delivered
    assert plant.message(call_id) is None
    first, second = plant.server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == call_id
    assert first.body == second.body


@pytest.mark.req("API-08", "TRK-08", "TRK-10")
@pytest.mark.parametrize("status", [400, 404, 422])
def test_permanently_rejected_call_raises_in_the_script_and_is_not_retried(plant: Plant, status: int) -> None:
    plant.server.on().answer(status, "no such part")
    with pytest.raises(OperationFailed) as caught:
        plant.site.external("erp").call("POST", "/orders")
    error = caught.value
    assert (error.code, error.http_status) == ("external.refused", status)
    assert "no such part" in error.message
    assert error.call_id is not None
    record = plant.record(error.call_id)
    assert (record.status, record.last_error, record.terminal_at) == (
        CallStatus.FAILED,
        error.message,
        plant.clock.now(),
    )
    assert plant.message(error.call_id) is None
    assert plant.sweep_later() == 0
    now = plant.clock.now()
    assert not plant.site._buffer.retry(error.call_id, now)
    assert not plant.site._buffer.discard(error.call_id, now)
    assert plant.record(error.call_id) == record


@pytest.mark.req("API-08", "TRK-08")
def test_permanently_rejected_write_raises_in_the_script(plant: Plant) -> None:
    with pytest.raises(OperationFailed) as caught:
        plant.site.database("plant").write("count", {"unit": None, "n": 1})
    assert caught.value.call_id is not None
    assert plant.record(caught.value.call_id).status is CallStatus.FAILED
    assert plant.site._buffer.depth().waiting == {}


@pytest.mark.req("API-06", "TRK-07", "TRK-09", "TRK-14")
def test_every_outcome_is_recorded_at_the_site_without_central(plant: Plant) -> None:
    """Central's port is closed; each status in turn is what `site.tracking.status` tells."""
    plant.server.on(path="/no").answer(404)
    delivered = plant.site.external("erp").call("GET", "/yes")
    with pytest.raises(OperationFailed) as failed:
        plant.site.external("erp").call("GET", "/no")
    parked = plant.site.external("dead").call("GET", "/")
    discarded = plant.site.external("dead").call("GET", "/")
    assert plant.record(parked).status is CallStatus.RETRYING
    for _ in range(RETRIES_MAX):
        plant.sweep_later()
    assert plant.site._buffer.discard(discarded, plant.clock.now())
    assert failed.value.call_id is not None
    seen = {plant.record(call_id).status for call_id in (delivered, failed.value.call_id, parked, discarded)}
    assert seen == {
        CallStatus.DELIVERED,
        CallStatus.FAILED,
        CallStatus.PARKED,
        CallStatus.DISCARDED,
    }
    assert plant.site._buffer.retry(parked, plant.clock.now())
    assert plant.record(parked).status is CallStatus.RETRYING
    # An operation is pending only while its first attempt is under way: another process sees it.
    gate = plant.server.gate()
    plant.server.on(path="/slow").answer(200).wait(gate)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(plant.site.external("erp").call, "GET", "/slow")
        plant.server.until(lambda: plant.server._server.requests[-1].path == "/slow")
        assert [r.status for r in plant.site.tracking.changed_since(0, 100)][-1] is CallStatus.PENDING
        gate.open()
        assert plant.record(call.result()).is_delivered


@pytest.mark.req("API-06")
@pytest.mark.bad_input(7)
def test_an_unknown_operation_is_not_found_and_a_malformed_id_is_refused(plant: Plant) -> None:
    with pytest.raises(NotFound) as unknown:
        plant.site.tracking.status("01978d5e-0000-7000-8000-000000000001")
    assert unknown.value.code == "call.unknown"
    for text in ("", "x", "01978D5E-0000-7000-8000-000000000001", None, 5):
        with pytest.raises(InvalidInput) as malformed:
            plant.site.tracking.status(text)  # type: ignore[arg-type]
        assert malformed.value.code == "call.bad_id"


@pytest.mark.req("TRK-02")
def test_a_notification_has_no_tracking_row(plant: Plant) -> None:
    notification_id = plant.site.notify.to("ops").send("s", "b")
    with pytest.raises(NotFound):
        plant.site.tracking.status(notification_id)
    assert plant.site.tracking.changed_since(0, 10) == []


@pytest.mark.bad_input(8)
@pytest.mark.parametrize("name", ["nobody", "http://127.0.0.1/", "INSERT INTO x VALUES (1)", "", None, b"erp"])
def test_undefined_names_are_rejected_and_nothing_is_written(plant: Plant, name: str) -> None:
    for door in (plant.site.external, plant.site.database):
        with pytest.raises(InvalidInput):
            door(name)
    with pytest.raises(InvalidInput):
        plant.site.database("plant").write("INSERT INTO counts VALUES ('x', 'y', 1)")
    with pytest.raises(InvalidInput):
        plant.site.external("erp").call("GET", "http://elsewhere.example/")
    assert plant.site.tracking.changed_since(0, 10) == []
    assert plant.site._buffer.depth().waiting == {}


CALLING = """
import sys
from fieldpost import Site
site = Site.open(sys.argv[1])
print("ready", flush=True)
print(site.external("erp").call("POST", "/orders", json={"n": 1}), flush=True)
"""


@pytest.mark.req("DEC-25", "TRK-03")
def test_a_caller_that_dies_in_its_attempt_leaves_the_call_to_the_agent(plant: Plant) -> None:
    plant.server.on().hang().times(1)
    with subprocess.Popen([sys.executable, "-c", CALLING, plant.folder], stdout=subprocess.PIPE) as caller:
        plant.server.received(timeout_s=20)
        caller.kill()
    [record] = plant.site.tracking.changed_since(0, 10)
    assert record.status is CallStatus.PENDING
    # The caller's clock is the machine's; the plant's is moved to where the claim has run out, and not before.
    plant.clock.step((record.created_at - plant.clock.now()).total_seconds())
    assert plant.sweep() == 0
    plant.clock.advance(TIMEOUT_S + CLAIM_MARGIN_S)
    assert plant.sweep() == 1
    assert plant.record(record.call_id).is_delivered
    first, second = plant.server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == record.call_id


def test_interrupted_call_passes_to_the_agent_at_once(plant: Plant) -> None:
    plant.server.on().hang().times(1)
    with subprocess.Popen(
        [sys.executable, "-c", CALLING, plant.folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as caller:
        plant.server.received(timeout_s=20)
        caller.send_signal(signal.SIGINT)
        _, error = caller.communicate(timeout=20)
    assert b"KeyboardInterrupt" in error
    assert plant.sweep() == 1
    [record] = plant.site.tracking.changed_since(0, 10)
    assert record.is_delivered


def test_script_that_calls_and_does_not_close_its_site_prints_nothing(plant: Plant) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", CALLING, plant.folder], capture_output=True, text=True, check=True
    )
    # On a busy machine asyncio's debug mode logs callbacks that took more than 0.1 s; that is not about the site.
    is_slow = re.compile(r"Executing <.* took [0-9.]+ seconds").fullmatch
    assert [line for line in done.stderr.splitlines() if not is_slow(line)] == []
    assert plant.record(done.stdout.split()[-1]).is_delivered


OPENING_PER_JOB = """
import gc, sys
from fieldpost import Site
for number in range(3):
    Site.open(sys.argv[1]).external("erp").call("POST", "/orders", json={"n": number})
    gc.collect()
"""


def test_script_that_opens_a_site_per_job_and_never_closes_it_prints_nothing(plant: Plant) -> None:
    done = subprocess.run([sys.executable, "-c", OPENING_PER_JOB, plant.folder], capture_output=True, check=True)
    assert (len(plant.server.requests), done.stderr) == (3, b"")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_calls_work_in_parent_and_child_after_a_fork(plant: Plant) -> None:
    plant.site.external("erp").call("GET", "/before")
    plant.site.database("plant").write("count", {"unit": "before", "n": 0})
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call = plant.site.external("erp").call("GET", "/child")
            row = plant.site.database("plant").write("count", {"unit": "child", "n": 1})
            os.write(write, f"{call} {row}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        from_child = answer.read().split()
    os.waitpid(child, 0)
    assert len(from_child) == 2
    ids = [plant.site.external("erp").call("GET", "/parent"), *from_child]
    assert all(plant.record(call_id).is_delivered for call_id in ids)
    assert [request.path for request in plant.server.requests] == ["/before", "/child", "/parent"]
    assert plant.query("SELECT unit FROM counts ORDER BY n") == [("before",), ("child",)]


def test_threads_call_at_once_and_share_the_loop(plant: Plant) -> None:
    gate = plant.server.gate()
    plant.server.on().answer(200).wait(gate)
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(plant.site.external("erp").call, "POST", f"/{number}") for number in range(8)]
        plant.server.received(8)
        assert sum(thread.name == "fieldpost-background" for thread in threading.enumerate()) == 1
        gate.open()
        ids = [call.result() for call in calls]
    assert len(set(ids)) == 8
    assert all(plant.record(call_id).is_delivered for call_id in ids)


async def test_script_with_its_own_event_loop_can_call_from_it(plant: Plant) -> None:
    assert plant.record(plant.site.external("erp").call("GET", "/")).is_delivered


def test_hanging_target_costs_its_timeout_and_no_more(tmp_path: Path, plant: Plant) -> None:
    plant.define(f'\n[external.slow]\nurl = "{plant.server.url}"\ntimeout_s = 0.2\n')
    plant.server.on(path="/hang").hang()
    with Site.open(plant.folder) as site:
        started = time.monotonic()
        call_id = site.external("slow").call("GET", "/hang")
        assert time.monotonic() - started < 9, "not the ten seconds of a call that says nothing of it"
        assert site.tracking.status(call_id).status is CallStatus.RETRYING


def test_names_of_the_site_are_the_definitions_of_its_file(plant: Plant) -> None:
    assert repr(plant.site.external("erp")) == "ExternalSystem('erp')"
    assert repr(plant.site.database("plant")) == "DatabaseConnection('plant')"
