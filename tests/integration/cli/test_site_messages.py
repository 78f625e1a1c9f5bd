"""The command line for the engineer at a site, and for scripts that call and write."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from fieldpost.core.ids import is_id
from fieldpost.core.sites.forwarding import Box
from fieldpost.core.sites.message import CallStatus, Message
from fieldpost.site.buffer.agent_lock import AgentLock
from fieldpost.site.repair import compact
from support.commands_of_site import fieldpost_here as fieldpost
from support.disks import small_disk
from support.plant import Plant, running_plant
from support.running_central import MAIN, until

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    with running_plant(tmp_path / "plant", retries_max=1) as plant:
        yield plant


def run(plant: Plant, *arguments: object, given: bytes = b"") -> str:
    """What a command that succeeds prints."""
    result = fieldpost(*arguments, "--folder", plant.folder, given=given)
    assert result.returncode == 0, result.stderr
    return result.stdout.decode().strip()


@pytest.mark.req("API-07")
def test_shell_script_calls_writes_and_reads_the_results(plant: Plant) -> None:
    options = ["--query", "dry=no", "--query", "tag=a", "--query", "tag=b", "--header", "X-Plant=7", "--instance", "p3"]
    called = run(plant, "call", "erp", "POST", "/orders", "--body-json", "-", *options, given=b'{"part": "seal"}')
    [request] = plant.server.received()
    assert (request.target, request.body) == ("/orders?dry=no&tag=a&tag=b", b'{"part":"seal"}')
    assert (request.headers["x-plant"], request.headers["idempotency-key"]) == ("7", called)
    assert run(plant, "status", called).startswith("delivered, at ")
    written = run(plant, "write", "plant", "count", "-p", "unit=pump-3", "--parameters", '{"n": 17}')
    assert plant.query("SELECT call_id, unit, n FROM counts") == [(written, "pump-3", 17)]
    record = json.loads(run(plant, "status", written, "--json"))
    assert (record["status"], record["category"], record["target_summary"]) == ("delivered", "database_write", "plant")
    waiting = run(plant, "call", "dead", "PUT", "/x", "--body", "text", "--key", "k-1")
    assert run(plant, "call", "dead", "PUT", "/x", "--body", "text", "--key", "k-1") == waiting
    assert run(plant, "status", waiting).startswith("retrying: ")


@pytest.mark.req("API-08")
def test_permanently_rejected_call_has_its_own_exit_code(plant: Plant) -> None:
    plant.server.on().answer(404)
    result = fieldpost("call", "erp", "POST", "/nothing", "--folder", plant.folder)
    assert result.returncode == 10
    assert b"404" in result.stderr
    assert result.stderr.count(b"\n") == 1
    assert run(plant, "status", result.stdout.decode().strip()).startswith("failed, at "), "its id is told all the same"
    plant.query("CREATE TRIGGER no BEFORE INSERT ON counts BEGIN SELECT raise(ABORT, 'never'); END")
    told = fieldpost("write", "plant", "count", "-p", "unit=p", "-p", "n=1", "--json", "--folder", plant.folder)
    assert (told.returncode, json.loads(told.stdout)["status"]) == (10, "failed")


@pytest.mark.parametrize(
    "command",
    [
        ["send", "--to", "ops", "--subject", "s", "b"],
        ["call", "erp", "POST", "/orders"],
        ["write", "plant", "count", "-p", "unit=p", "-p", "n=1"],
    ],
)
def test_shell_script_sets_its_provenance(plant: Plant, command: list[str]) -> None:
    given = {"instance": "press-2", "script": "shift.sh", "execution_id": "run-7", "parent_execution_id": "run-1"}
    options = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)]
    made = run(plant, *command, *options)
    told: dict[str, object]
    if command[0] == "send":
        message = plant.site._buffer.find(made)
        assert isinstance(message, Message)
        told = json.loads(message.payload)
    else:
        told = json.loads(run(plant, "status", made, "--json"))
    assert {name: told.get(name) for name in given} == given


@pytest.mark.req("CHN-01")
def test_a_shell_script_sends_the_end_of_an_alarm(plant: Plant) -> None:
    alarm = ["--severity", "critical", "--incident", "pump 3", "--cleared"]
    message = plant.site._buffer.find(run(plant, "send", "--to", "ops", "--subject", "s", *alarm, "b"))
    assert isinstance(message, Message)
    told = json.loads(message.payload)
    assert (told["severity"], told["incident"], told["is_cleared"]) == ("critical", "pump 3", True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["call", "nobody", "GET", "/"], 3, b"nobody"),
        (["call", "erp", "GET", "http://elsewhere/"], 3, b"path"),
        (["call", "erp", "GET", "/", "--query", "novalue"], 3, b"--query must be NAME=VALUE"),
        (["call", "erp", "GET", "/", "--header", "A=1", "--header", "A=2"], 3, b"given twice"),
        (["call", "erp", "POST", "/", "--body-json", "{"], 3, b"json.malformed"),
        (["call", "erp", "POST", "/", "--body-json", "{}", "--body", "x"], 3, b"call.body"),
        (["write", "plant", "nothing"], 3, b"nothing"),
        (["write", "plant", "count", "--parameters", "[]"], 3, b"must be a JSON object"),
        (
            ["write", "plant", "count", "-p", "n=1", "--parameters", '{"n": 2}'],
            3,
            b"n is also in --parameters",
        ),
        (["send", "--to", "ops", "--subject", "s", "--execution-id", "", "b"], 3, b"execution_id must not be empty"),
        (["send", "--to", "ops", "--subject", "s", "--severity", "high", "b"], 3, b"severity must be one of info, "),
        (["site", "events", "--kind", "exploded"], 3, b"kind must be one of queued, delivered, "),
        (["status", "x"], 3, b"bad_id"),
        (["site", "retry", "x"], 3, b"call.bad_id"),
        (["site", "discard", "01a1de57-9e44-7863-858d-f15d85e1a8b2"], 4, b"call.unknown"),
        (["site", "rejected", "resubmit", "01a1de57-9e44-7863-858d-f15d85e1a8b2"], 4, b"rejected.unknown"),
        (["site", "events", "--severity", "fatal"], 3, b"severity must be"),
        (["site", "events", "--from", "yesterday"], 3, b"from must be a time"),
        (["site", "events", "--words", "x" * 999], 3, b"words must be at most 998 bytes"),
        (["site", "events", "--limit", "0"], 2, b"limit"),
        (["site", "parked", "--no-such-option"], 2, b"No such option"),
        (["site", "export", "/nowhere/at/all"], 3, b"file.unreadable"),
        (["site", "import", "/nowhere/at/all"], 3, b"file.unreadable"),
        (["site", "import", "two\nlines"], 3, b"file.unreadable"),
    ],
)
@pytest.mark.bad_input(8, 49)
def test_invalid_input_is_an_error_message_with_its_exit_code(
    plant: Plant, arguments: list[str], code: int, said: bytes
) -> None:
    result = fieldpost(*arguments, "--folder", plant.folder)
    assert result.returncode == code
    assert said in result.stderr
    assert b"Traceback" not in result.stderr
    assert result.stdout == b""
    assert plant.server.received(0) == []


@pytest.mark.bad_input(50)
def test_no_command_of_a_site_takes_a_token_on_the_command_line(tmp_path: Path) -> None:
    given = ["site", "init", tmp_path / "s", "--name", "p", "--central", "https://c", "--token", "fp_site_a_b"]
    result = fieldpost(*given)
    assert (result.returncode, (tmp_path / "s").exists()) == (2, False)
    assert b"No such option" in result.stderr


def park(plant: Plant) -> str:
    """A call that has been tried as often as its system allows."""
    call_id = plant.site.external("dead").call("POST", "/orders", instance="pump-3")
    plant.sweep_later()
    assert plant.record(call_id).status is CallStatus.PARKED
    return call_id


@pytest.mark.req("SF-06", "TRK-09", "SF-20")
def test_parked_calls_are_listed_retried_and_discarded_at_the_site(plant: Plant) -> None:
    again, never = park(plant), park(plant)
    listed = run(plant, "site", "parked")
    assert again in listed
    assert never in listed
    assert "dead POST /orders" in listed
    assert [one["call_id"] for one in json.loads(run(plant, "site", "parked", "--json"))] == [again, never]
    run(plant, "site", "retry", again)
    run(plant, "site", "discard", never)
    assert plant.record(again).status is CallStatus.RETRYING
    assert plant.record(never).status is CallStatus.DISCARDED
    assert run(plant, "site", "parked") == "No parked calls."
    refused = fieldpost("site", "retry", never, "--folder", plant.folder)
    assert (refused.returncode, b"call.not_parked" in refused.stderr) == (5, True)
    acts = json.loads(run(plant, "site", "events", "--kind", "discarded", "--json"))
    assert [(entry["message_id"], "at the site" in entry["text"]) for entry in acts] == [(never, True)]


def test_a_folder_may_be_given_before_or_after_the_name_of_a_command(plant: Plant, tmp_path: Path) -> None:
    fieldpost_elsewhere = partial(fieldpost, FIELDPOST_FOLDER=str(tmp_path / "elsewhere"))
    shown = fieldpost_elsewhere("site", "--folder", plant.folder, "parked")
    assert shown.stdout == b"No parked calls.\n"
    unknown = "01a1de57-9e44-7863-858d-f15d85e1a8b2"
    refused = fieldpost_elsewhere("site", "rejected", "-f", plant.folder, "discard", unknown)
    assert b"rejected.unknown" in refused.stderr
    assert b"site.no_folder" in fieldpost_elsewhere("site", "parked").stderr


@pytest.mark.req("SF-20")
def test_the_event_log_is_read_with_filters_and_newest_first(plant: Plant) -> None:
    call_id = park(plant)
    kinds = [entry["kind"] for entry in json.loads(run(plant, "site", "events", "--message-id", call_id, "--json"))]
    assert kinds[-2:] == ["retried", "queued"]
    assert kinds[0] == "parked"
    errors = run(plant, "site", "events", "--severity", "error")
    assert "parked" in errors
    assert "queued" not in errors
    assert call_id in run(plant, "site", "events", "--words", "POST Orders dead")
    assert run(plant, "site", "events", "--words", "nonesuch") == "No matching entries."
    assert run(plant, "site", "events", "--to", "2000-01-01T00:00:00Z") == "No matching entries."


@pytest.mark.req("DEC-13")
def test_rejected_notifications_are_listed_resubmitted_and_discarded_at_the_site(plant: Plant) -> None:
    again, never = (plant.site.notify.to("ops").send("s", "b") for _ in range(2))
    plant.site._buffer.settle([(i, Box("submit.conflict", "other content")) for i in (again, never)], NOW)
    assert "submit.conflict" in run(plant, "site", "rejected")
    assert run(plant, "status", again).startswith("rejected: submit.conflict")
    told = run(plant, "site", "rejected", "resubmit", again, "--json")
    assert json.loads(told) == {"notification_id": again, "status": "forwarding"}
    run(plant, "site", "rejected", "discard", never)
    message = plant.site._buffer.find(again)
    assert isinstance(message, Message)
    assert json.loads(message.payload)["notification_id"] == again
    assert plant.site._buffer.find(never) is None
    assert run(plant, "site", "rejected") == "The rejected box is empty."


def test_state_of_the_site_lists_the_queue_with_and_without_an_agent(plant: Plant) -> None:
    plant.site.notify.to("ops").send("s", "b")
    told = run(plant, "site", "status")
    assert "not running" in told
    assert "1 notification" in told
    agent = subprocess.Popen([sys.executable, "-c", MAIN, "site", "--folder", plant.folder], stderr=subprocess.DEVNULL)
    try:

        async def link() -> dict[str, object]:
            found = await asyncio.to_thread(run, plant, "site", "status", "--json")
            return json.loads(found)["link"] or {}

        async def is_failing() -> bool:
            return (await link()).get("error_code") == "link.unreachable"

        asyncio.run(until(is_failing, 40, "the agent to tell that central cannot be reached"))
        assert f"running, process {agent.pid}" in run(plant, "site", "status")
    finally:
        agent.terminate()
        assert agent.wait(20) == 0


def test_a_status_is_watched_until_nothing_more_happens(plant: Plant) -> None:
    call_id = plant.site.external("dead").call("POST", "/orders")
    watching = ["status", call_id, "--watch", "--interval-s", "0.1", "--folder", str(plant.folder)]
    process = subprocess.Popen([sys.executable, "-c", MAIN, *watching], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("retrying: ")
    plant.sweep_later()
    assert process.stdout.readline().startswith("parked")
    assert process.wait(20) == 0


@pytest.mark.bad_input(49)
def test_watch_ends_with_ctrl_c_and_a_closed_pipe_is_not_an_error(plant: Plant) -> None:
    call_id = plant.site.external("dead").call("POST", "/orders")
    watching = ["status", call_id, "--watch", "--folder", str(plant.folder)]
    process = subprocess.Popen([sys.executable, "-c", MAIN, *watching], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (130, b"")
    for _ in range(300):
        plant.site.notify.to("ops").send("s", "b" * 900)
    command = f"{sys.executable} -c '{MAIN}' site export - --folder {plant.folder} | head -c 10"
    piped = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, check=False)
    assert (piped.returncode, piped.stderr) == (0, b"")


def test_an_export_can_be_imported_elsewhere_and_twice_adds_nothing(plant: Plant, tmp_path: Path) -> None:
    notification = plant.site.notify.to("ops").send("s", "ü\n" * 100)
    rejected = plant.site.notify.to("ops").send("s", "b")
    plant.site._buffer.settle([(rejected, Box("submit.conflict", "other content"))], NOW)
    parked = park(plant)
    delivered = plant.site.external("erp").call("POST", "/orders")
    file = tmp_path / "export.jsonl"
    assert run(plant, "site", "export", file) == "Exported 2 tracking, 2 messages, 1 rejected."
    with running_plant(tmp_path / "other") as other:
        assert run(other, "site", "import", file) == "Imported 2 tracking, 2 messages, 1 rejected."
        assert run(other, "site", "import", "-", given=file.read_bytes()) == "Imported nothing; 5 already present."
        assert json.loads(run(other, "site", "import", file, "--json")) == {"imported": {}, "already_there": 5}
        before, after = plant.site._buffer.find(notification), other.site._buffer.find(notification)
        assert isinstance(before, Message)
        assert isinstance(after, Message)
        assert (after.payload, after.created_at) == (before.payload, before.created_at)
        assert run(other, "status", rejected).startswith("rejected: submit.conflict")
        assert other.record(parked).status is CallStatus.PARKED
        assert other.record(delivered).status is CallStatus.DELIVERED
        assert other.record(parked).change_sequence <= other.site.tracking.last_change()
        run(other, "site", "retry", parked)
        assert other.record(parked).status is CallStatus.RETRYING


def test_export_is_private_and_removed_if_the_disk_is_full(plant: Plant, tmp_path: Path) -> None:
    plant.site.notify.to("ops").send("s", "b" * 200_000)
    run(plant, "site", "export", tmp_path / "export.jsonl")
    assert stat.S_IMODE((tmp_path / "export.jsonl").stat().st_mode) == 0o600
    for _ in range(9):
        plant.site.notify.to("ops").send("s", "b" * 200_000)
    with small_disk(tmp_path / "stick", 1) as stick:
        result = fieldpost("site", "export", stick / "export.jsonl", "--folder", plant.folder)
        assert (result.returncode, result.stdout) == (7, b"")
        assert result.stderr.endswith(b"export.jsonl: No space left on device [file.unwritable]\n")
        assert list(stick.iterdir()) == []


BAD_LINES = [
    (b"", "line 1", ""),
    (b"{}\n", "line 1", "`site`"),
    (b'{"t":"export","site":"other","exported_at":"x"}\n', "other", "--any-site"),
    (b'{"t":"export","site":"plant-7","exported_at":"x","version":9}\n', "line 1, version", "up to 1"),
]


@pytest.mark.parametrize(("content", "where", "said"), BAD_LINES)
def test_other_file_is_rejected_as_an_import(plant: Plant, content: bytes, where: str, said: str) -> None:
    result = fieldpost("site", "import", "-", "--folder", plant.folder, given=content)
    assert result.returncode in (3, 5)
    assert where in result.stderr.decode()
    assert said in result.stderr.decode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"message_id": "x"}, "line 3, message_id: must be an id"),
        ({"created_at": "yesterday"}, "line 3, created_at: must be a time"),
        ({"category": "gossip"}, "line 3: "),
        ({"colour": "red"}, "line 3: "),
        ({"payload": "{"}, "line 3: "),
        ({"payload": "{}"}, "line 3: "),
        ({"status": "parked"}, "line 3: violates a constraint"),
        ({"retry_count": -1}, "line 3: violates a constraint"),
    ],
)
def test_bad_line_is_reported_by_number_and_nothing_is_imported(
    plant: Plant, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    for _ in range(2):
        plant.site.notify.to("ops").send("s", "b")
    head, first, second = run(plant, "site", "export", "-").splitlines()
    bad = json.dumps(json.loads(second) | change)
    with running_plant(tmp_path / "other") as other:
        result = fieldpost("site", "import", "-", "-f", other.folder, given=f"{head}\n{first}\n{bad}\n".encode())
        assert result.returncode == 3
        assert said in result.stderr.decode()
        assert other.site._buffer.depth().waiting == {}


def test_a_large_buffer_is_not_compacted_while_an_agent_runs(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "LIVE_BYTES_MAX", 1)
    with AgentLock(plant.folder):
        result = fieldpost("site", "compact", "--folder", plant.folder)
    assert (result.returncode, result.stdout) == (5, b"")
    assert b"buffer.too_large_to_compact" in result.stderr
    assert "Compacted the buffer" in run(plant, "site", "compact")


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is asked of /proc")
def test_memory_of_compacting_does_not_grow_with_the_queue(plant: Plant) -> None:
    program = """
import re, sys
from pathlib import Path
from fieldpost.site.repair.compact import compact
def peak_kib():
    # Not `ru_maxrss`, which begins with what the process had that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak_kib()
compact(Path(sys.argv[1]))
print(peak_kib() - before)
"""
    insert = (
        "INSERT INTO messages (message_id, category, target, payload, created_at) VALUES (?, 'notification', '', ?, 1)"
    )
    rows = [(str(number), "x" * 1_000_000) for number in range(48)]
    plant.site._buffer.write(lambda cursor: cursor.executemany(insert, rows))
    plant.site.close()
    command = [sys.executable, "-c", program, plant.folder / "buffer.db"]
    grown_kib = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert grown_kib < 24 * 1024


def test_compacting_frees_space_while_scripts_have_the_buffer_open(plant: Plant) -> None:
    sent = [plant.site.notify.to("ops").send("s", "b" * 20_000) for _ in range(100)]
    from fieldpost.core.sites.forwarding import Clear

    plant.site._buffer.settle([(i, Clear()) for i in sent[1:]], NOW)
    told = json.loads(run(plant, "site", "compact", "--json"))
    assert told["bytes_after"] < 500_000 < told["bytes_before"]
    assert "Compacted the buffer" in run(plant, "site", "compact")
    assert (plant.folder / "buffer.db").stat().st_size < 500_000
    assert plant.site._buffer.find(sent[0]) is not None
    assert is_id(plant.site.notify.to("ops").send("s", "b"))


def test_doctor_of_a_site_passes_or_names_the_issues(plant: Plant) -> None:
    plant.site.notify.to("ops").send("s", "b")
    park(plant)
    found = json.loads(run(plant, "site", "doctor", "--json"))
    checks = {check["name"]: check["status"] for check in found["checks"]}
    assert checks["buffer"] == "ok"
    assert checks["parked"] == "warning"
    assert checks["agent"] == "warning"
    assert found["contents"]["messages"] == {"external_call": {"parked": 1}, "notification": {"pending": 1}}
    assert found["contents"]["calls"] == {"parked": 1}
    os.chmod(plant.folder / "token", 0o644)
    (plant.folder / "site.toml").write_text("[site]\nname = 7\n")
    unwell = fieldpost("site", "doctor", "--folder", plant.folder, "--quick")
    assert unwell.returncode == 9
    assert b"can be read by other users" in unwell.stdout
    assert b"settings" in unwell.stdout
