"""The buffer's file: its shape, its durability settings, and what it does when the disk will not."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from fieldpost.core.errors import ConfigError, Conflict, Unavailable
from fieldpost.core.ids import new_id
from fieldpost.core.sites.forwarding import TryAgain
from fieldpost.core.sites.message import CENTRAL, Category, Message, MessageStatus
from fieldpost.core.times import to_microseconds
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.committer import Committer
from fieldpost.site.buffer.connection import BUSY_TIMEOUT_MS, connect, refuse_old_sqlite
from fieldpost.site.buffer.schema import schema_version
from support.disks import enlarge, small_disk
from support.site_writers import STUBBORN, TWO, add, ids_in, start
from support.strace import strace_with

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer.db"


@pytest.mark.req("DEC-02")
def test_every_connection_uses_wal_and_full_synchronization(path: Path) -> None:
    for _ in range(2):
        connection = connect(path)
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("synchronous") == 2
        connection.close()


@pytest.mark.req("DEC-02")
def test_commit_is_synced_before_it_returns(path: Path, tmp_path: Path) -> None:
    """Seen from outside: the system calls of a process that adds twice and says so in between."""
    trace = tmp_path / "trace"
    strace = strace_with("-o", str(trace), "-e", "trace=fsync,fdatasync,write")
    assert start(TWO, path, before=strace).communicate()[0] == "added\nadded\n"
    calls = trace.read_text().splitlines()
    ends = [number for number, line in enumerate(calls) if 'write(1, "added' in line]
    assert len(ends) == 2
    between = calls[ends[0] : ends[1]]
    assert any("sync(" in line for line in between)


@pytest.mark.fault(5)
def test_failed_sync_is_a_typed_error_and_confirmed_messages_stay(path: Path, tmp_path: Path) -> None:
    strace = strace_with("-o", str(tmp_path / "trace"), "-e", "inject=fdatasync:error=EIO:when=14")
    lines = start(STUBBORN, path, before=strace).communicate()[0].split()
    confirmed = {line for line in lines if line != "buffer.io"}
    assert len(lines) == 20
    assert lines.count("buffer.io") == 1
    assert ids_in(path) >= confirmed


@pytest.mark.req("REP-01", "MSG-01", "MSG-02", "MSG-03", "MSG-04", "MSG-08", "MSG-09")
def test_a_message_survives_a_restart_with_all_its_fields(path: Path) -> None:
    buffer = Buffer(path)
    message_id = add(buffer, '{"subject":"é"}', now=NOW)
    buffer.close()
    reopened = Buffer(path)
    assert reopened.find(message_id) == Message(
        sequence=1,
        message_id=message_id,
        category=Category.NOTIFICATION,
        target=CENTRAL,
        payload='{"subject":"é"}',
        created_at=NOW,
        retry_count=0,
        last_attempt_at=None,
    )
    for tried in (1, 2):
        later = NOW + timedelta(minutes=tried)
        reopened.settle([(message_id, TryAgain(later + timedelta(seconds=10), "not now"))], later)
        reopened.close()
        reopened = Buffer(path)
        found = reopened.find(message_id)
        assert isinstance(found, Message)
        assert (found.status, found.retry_count, found.last_error) == (MessageStatus.RETRYING, tried, "not now")
        assert (found.created_at, found.last_attempt_at) == (NOW, later), "first queued, and last tried"
    reopened.close()


@pytest.mark.req("MSG-01")
def test_id_is_unique(path: Path) -> None:
    buffer = Buffer(path)
    message_id = add(buffer, "first")
    with pytest.raises(Conflict) as caught:
        add(buffer, "second", message_id)
    assert caught.value.code == "message.not_new"
    found = buffer.find(message_id)
    assert isinstance(found, Message)
    assert found.payload == "first"
    buffer.close()


@pytest.mark.req("SF-01", "SF-08", "MSG-02", "MSG-03", "MSG-10")
@pytest.mark.parametrize(
    ("table", "category", "status", "is_taken"),
    [
        ("messages", "notification", "pending", True),
        ("messages", "notification", "retrying", True),
        ("messages", "gossip", "pending", False),
        ("messages", "notification", "delivered", False),
        ("messages", "notification", "parked", False),
        ("messages", "external_call", "pending", False),
        ("calls", "external_call", "parked", True),
        ("calls", "database_write", "pending", True),
        ("calls", "notification", "pending", False),
        ("calls", "external_call", "delivered", False),
    ],
)
def test_tables_enforce_the_rules(path: Path, table: str, category: str, status: str, is_taken: bool) -> None:
    Buffer(path).close()
    connection = connect(path)
    statement = f"""INSERT INTO {table}
        (message_id, category, target, payload, status, created_at)
        VALUES ('m', ?, 't', '{{}}', ?, 0)"""
    try:
        if is_taken:
            connection.execute(statement, (category, status))
        else:
            with pytest.raises(apsw.ConstraintError):
                connection.execute(statement, (category, status))
    finally:
        connection.close()


@pytest.mark.req("DEC-24")
@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.7.0"])
def test_an_sqlite_that_may_corrupt_the_file_is_refused(version: str) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_old_sqlite(version)
    assert caught.value.code == "buffer.old_sqlite"
    assert version in caught.value.message


def test_the_sqlite_in_use_is_new_enough() -> None:
    refuse_old_sqlite("3.51.3")
    refuse_old_sqlite(apsw.sqlite_lib_version())


def test_buffer_of_a_newer_version_is_rejected_and_not_changed(path: Path) -> None:
    Buffer(path).close()
    connection = connect(path)
    connection.pragma("user_version", schema_version() + 1)
    connection.close()
    with pytest.raises(ConfigError) as caught:
        Buffer(path)
    assert caught.value.code == "buffer.newer"
    with pytest.raises(ConfigError):
        Buffer(path)


def test_file_other_than_a_database_is_rejected_and_not_changed(path: Path) -> None:
    path.write_bytes(b"these are not the bytes you are looking for" * 100)
    before = path.read_bytes()
    with pytest.raises(Unavailable) as caught:
        Buffer(path)
    assert caught.value.code == "buffer.corrupt"
    assert path.read_bytes() == before


def test_missing_folder_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        Buffer(tmp_path / "nowhere" / "buffer.db")
    assert caught.value.code == "buffer.denied"


@pytest.mark.req("DEC-24")
@pytest.mark.fault(33)
def test_a_buffer_kept_busy_by_another_process_is_waited_for_and_then_unavailable(path: Path) -> None:
    patient = Committer(path, busy_timeout_ms=200)
    patient.write(lambda cursor: cursor.execute("PRAGMA user_version"))
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable) as caught:
        patient.write(lambda cursor: cursor.execute("DELETE FROM messages"))
    assert caught.value.code == "buffer.busy"
    other.execute("COMMIT")
    patient.write(lambda cursor: cursor.execute("DELETE FROM messages"))
    patient.close()
    other.close()


def test_busy_timeout_is_half_a_minute() -> None:
    assert BUSY_TIMEOUT_MS == 30_000


@pytest.mark.fault(6)
def test_full_disk_is_a_typed_error_and_buffered_messages_can_be_read(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        buffer = Buffer(disk / "buffer.db")
        accepted, error = fill(buffer)
        assert error.code == "buffer.full"
        assert accepted
        taken = buffer.take(NOW, items_max=500, bytes_max=10**9)
        assert [message.message_id for message in taken] == accepted
        enlarge(disk, 4)
        accepted.append(add(buffer, "x" * 10_000))
        assert buffer.depth().waiting == {Category.NOTIFICATION: len(accepted)}
        buffer.close()


def fill(buffer: Buffer) -> tuple[list[str], Unavailable]:
    """Add until it fails: the ids that were taken, and the failure."""
    accepted = []
    while True:
        try:
            accepted.append(add(buffer, "x" * 10_000))
        except Unavailable as error:
            return accepted, error


def test_oldest_are_taken_first_by_order_of_commits_with_any_clock(path: Path) -> None:
    buffer = Buffer(path)
    ids = [add(buffer) for _ in range(3)]
    early = new_id(datetime(1999, 1, 1, tzinfo=UTC), bytes(10))
    buffer.add(
        message_id=early,
        payload="{}",
        created_at=to_microseconds(datetime(1999, 1, 1, tzinfo=UTC)),
    )
    taken = buffer.take(NOW, items_max=10, bytes_max=1000)
    assert [message.message_id for message in taken] == [*ids, early]
    buffer.close()


def test_taking_reads_only_the_rows_it_takes(path: Path) -> None:
    """The hot query walks its table in order and stops; it sorts nothing, and sees no cached call."""
    Buffer(path).close()
    connection = connect(path)
    from fieldpost.site.buffer.notifications import _TAKE

    parameters = {"now": 0, "items_max": 5, "after": 7}
    plan = list(connection.execute("EXPLAIN QUERY PLAN " + _TAKE, parameters))
    connection.close()
    assert [row[3] for row in plan] == ["SEARCH messages USING INTEGER PRIMARY KEY (rowid>?)"]


def test_closed_buffer_raises_an_error(path: Path) -> None:
    buffer = Buffer(path)
    buffer.close()
    buffer.close()
    with pytest.raises(Conflict) as caught:
        add(buffer)
    assert caught.value.code == "buffer.closed"
