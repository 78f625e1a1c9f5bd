"""Scripts that have the buffer open, or open it, while it is salvaged or upgraded: what they confirm is there."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from fieldpost.core.errors import ConfigError, Conflict, Unavailable
from fieldpost.site.buffer import opening
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.connection import connect, open_existing
from fieldpost.site.buffer.schema import schema_version
from fieldpost.site.repair.salvage import salvage
from fieldpost.testing import ManualClock
from support.calls import Calls
from support.site_writers import add, ids_in, start, until
from support.strace import strace_with

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
DEADLINE_S = 30
A_WHILE_S = 0.5
"""What a salvage of a few rows needs and more, if it does not wait. A slow one only makes the test prove less."""

IDLE = """
import os, sys
from pathlib import Path
from fieldpost.site.buffer.buffer import Buffer
from support.site_writers import add
buffer = Buffer(Path(sys.argv[1]))
for _ in range(3):
    os.write(1, add(buffer).encode() + b"\\n")
    os.read(0, 1)
"""

ISSUING = """
import os, sys
from pathlib import Path
from fieldpost.clock import SystemClock
from support.calls import Calls
calls = Calls(Path(sys.argv[1]), SystemClock())
for _ in range(3):
    os.write(1, calls.issue().encode() + b"\\n")
    os.read(0, 1)
"""

# Sends again what it was not confirmed, as a script does; says each id when it is confirmed.
ONE_BY_ONE = """
import os, sys
from pathlib import Path
from fieldpost.core.errors import Unavailable
from fieldpost.site.buffer.buffer import Buffer
from support.site_writers import add
while True:
    try:
        buffer = Buffer(Path(sys.argv[1]))
        break
    except Unavailable as error:
        assert error.code == "buffer.salvaging", error
for _ in range(3):
    os.write(1, b"begins\\n")
    while True:
        try:
            os.write(1, add(buffer).encode() + b"\\n")
            break
        except Unavailable as error:
            assert error.code == "buffer.salvaging", error
"""

# One transaction that waits in its middle for a line from the test.
SLOWLY = """
import os, sys
from pathlib import Path
from fieldpost.site.buffer.buffer import Buffer
buffer = Buffer(Path(sys.argv[1]))
def work(cursor):
    os.write(1, b"writes\\n")
    os.read(0, 1)
    cursor.execute("INSERT INTO messages (message_id, category, target, payload, created_at) "
        "VALUES ('slow', 'notification', 'central', '{}', 0)")
buffer.write(work)
os.write(1, b"confirmed\\n")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "buffer.db"
    buffer = Buffer(path)
    add(buffer, message_id="first")
    buffer.close()
    return path


@pytest.mark.fault(8)
@pytest.mark.parametrize(
    ("file", "calls", "number"),
    [
        ("buffer.db", "openat", 1),
        ("buffer.db-shm", "openat", 1),
        ("buffer.db-wal", "pwrite64", 1),
        ("buffer.db-wal", "fdatasync", 1),
    ],
)
def test_messages_of_a_script_stopped_anywhere_during_a_salvage_are_in_the_buffer(
    path: Path, file: str, calls: str, number: int
) -> None:
    trap = ("-e", f"trace={calls}", "-P", str(path.with_name(file)), "-e", f"inject={calls}:signal=STOP:when={number}")
    log = path.with_name("strace.log")
    script = start(ONE_BY_ONE, path, before=strace_with("-o", str(log), *trap))
    stopped = stopped_process(script, log)
    with salvage_beside(path) as salvaged:
        # It must wait for a script that it has caught in the middle, and need not for any other.
        salvaged.wait(A_WHILE_S)
        os.kill(stopped, signal.SIGCONT)
        output, _ = script.communicate(timeout=DEADLINE_S)
    assert script.returncode == 0
    confirmed = set(output.split()) - {"begins"}
    assert len(confirmed) == 3
    assert ids_in(path) == {"first", *confirmed}


def stopped_process(tracer: "subprocess.Popen[str]", log: Path) -> int:
    """The process that strace runs, when it has been stopped."""

    def is_stopped() -> bool:
        assert tracer.poll() is None, "it ended without coming there"
        return log.exists() and "stopped by SIGSTOP" in log.read_text(encoding="utf-8")

    until(is_stopped)
    return int(log.read_text(encoding="utf-8").rpartition("--- stopped by SIGSTOP")[0].split()[-1])


@pytest.mark.fault(8)
def test_salvage_does_not_wait_for_an_idle_script_whose_later_messages_are_in_the_new_buffer(
    path: Path,
) -> None:
    script = start(IDLE, path, stdin=subprocess.PIPE)
    assert script.stdout is not None
    assert script.stdin is not None
    confirmed = {script.stdout.readline().strip()}
    set_aside = salvage(path, NOW).set_aside
    output, _ = script.communicate("\n\n\n", timeout=DEADLINE_S)
    confirmed.update(output.split())
    assert len(confirmed) == 3
    assert ids_in(path) == {"first", *confirmed}
    assert set_aside.exists()


def test_a_call_issued_after_the_salvage_is_in_the_new_file(path: Path) -> None:
    """Calls are written in a transaction of several statements, on a connection from before the salvage."""
    script = start(ISSUING, path, stdin=subprocess.PIPE)
    assert script.stdout is not None
    assert script.stdin is not None
    issued = [script.stdout.readline().strip()]
    salvage(path, NOW)
    output, _ = script.communicate("\n\n", timeout=DEADLINE_S)
    issued += output.split()
    assert len(issued) == 3
    calls = Calls(path, ManualClock())
    try:
        assert [calls.record(call_id).status.value for call_id in issued] == ["pending"] * 3
    finally:
        calls.close()


@contextmanager
def salvage_beside(path: Path) -> Iterator[threading.Event]:
    """A salvage in another thread; the event tells when it has ended."""
    ended = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            salvage(path, NOW)
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    yield ended
    thread.join(DEADLINE_S * 2)
    assert ended.is_set()
    assert not errors


@pytest.mark.fault(8)
def test_salvage_waits_for_a_transaction_even_in_a_file_too_damaged_for_sqlite(path: Path) -> None:
    """The script has the first pages in memory, and goes on; whoever opens the file meets the damage."""
    script = start(SLOWLY, path, stdin=subprocess.PIPE)
    assert script.stdout is not None
    assert script.stdout.readline() == "writes\n"
    with path.open("r+b") as file:
        file.write(b"\xa5" * 100)
    with pytest.raises(apsw.NotADBError):
        open_existing(path).execute("SELECT count(*) FROM messages")
    with salvage_beside(path) as salvaged:
        assert not salvaged.wait(A_WHILE_S)
        output, _ = script.communicate("\n", timeout=DEADLINE_S)
    assert output == "confirmed\n"
    assert ids_in(path) == {"first", "slow"}


@pytest.mark.parametrize(
    "upgrade",
    [
        # What this version writes breaks a rule of the next one, or its table is not there any more.
        "CREATE TRIGGER next BEFORE INSERT ON messages BEGIN SELECT RAISE(ABORT, 'put it elsewhere'); END;"
        "CREATE TRIGGER calls_next BEFORE INSERT ON calls BEGIN SELECT RAISE(ABORT, 'put it elsewhere'); END;",
        "ALTER TABLE messages RENAME TO notifications; ALTER TABLE calls RENAME TO operations;",
    ],
)
def test_script_running_since_before_an_upgrade_gets_both_versions_and_advice_to_restart(
    path: Path, upgrade: str
) -> None:
    calls = Calls(path, ManualClock())
    newer = connect(path)
    newer.execute(f"BEGIN; {upgrade} PRAGMA user_version = {schema_version() + 1}; COMMIT")
    acts: list[Callable[[], object]] = [lambda: add(calls.buffer), calls.issue]
    if "RENAME" in upgrade:
        acts += [lambda: calls.buffer.take(NOW, items_max=1, bytes_max=1), calls.buffer.depth]
    for act in acts:
        with pytest.raises(ConfigError) as caught:
            act()
        assert caught.value.code == "buffer.newer"
        assert f"schema version {schema_version() + 1}" in caught.value.message
        assert f"up to {schema_version()}" in caught.value.message
        assert "restart" in (caught.value.hint or "")
    newer.close()
    calls.close()


def test_row_that_breaks_a_rule_of_this_version_is_not_mistaken_for_an_upgrade(path: Path) -> None:
    buffer = Buffer(path)
    for _ in range(2):
        with pytest.raises(Conflict) as caught:
            add(buffer, message_id="first")
        assert caught.value.code == "message.not_new"
    buffer.close()


@pytest.mark.skipif(os.name != "posix", reason="the lock file is used on POSIX systems only")
def test_a_lock_file_that_another_program_keeps_locked_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr(opening, "BUSY_TIMEOUT_MS", 50)
    with (tmp_path / "buffer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match=r"keeps .*buffer.lock locked") as refused:
            Buffer(tmp_path / "buffer.db")
    assert refused.value.code == "buffer.busy"
    Buffer(tmp_path / "buffer.db").close()
