"""The layout of the buffer: separate tables for notifications and cached calls, upgrades, refused layouts."""

from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from fieldpost.core.errors import ConfigError, Unavailable
from fieldpost.core.sites.forwarding import Clear
from fieldpost.core.sites.message import Category, Message, MessageStatus
from fieldpost.site.buffer import calls as stored_calls
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.connection import connect, open_existing
from fieldpost.site.buffer.schema import STEPS, schema_version
from fieldpost.site.repair.btrees import TABLE_INTERIOR
from fieldpost.site.repair.doctor import examine, read_contents
from fieldpost.site.repair.salvage import salvage
from fieldpost.testing import ManualClock
from support.calls import Calls
from support.site_writers import add

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
STEP_2 = """
ALTER TABLE messages ADD COLUMN priority INTEGER NOT NULL DEFAULT 5;
CREATE TABLE pairs (name TEXT PRIMARY KEY) STRICT;
"""
"""A made-up next version of the layout."""
SHAPE = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer.db"


@pytest.fixture
def step_2(tmp_path: Path) -> Path:
    step = tmp_path / "step_2.sql"
    step.write_text(STEP_2, encoding="utf-8")
    return step


def filled(path: Path) -> tuple[list[str], str, str]:
    """A buffer of the present version: its notifications in order, a call held by its script, and a parked call."""
    calls = Calls(path, ManualClock(NOW))
    sent = [add(calls.buffer, now=NOW), add(calls.buffer, now=NOW)]
    parked = calls.parked()
    held = calls.issue("mes")
    sent.append(add(calls.buffer, now=NOW))
    calls.close()
    return sent, held, parked


def taken(buffer: Buffer) -> list[str]:
    return [message.message_id for message in buffer.take(NOW, items_max=10, bytes_max=10_000)]


def test_upgrade_keeps_rows_and_claims_and_gives_the_schema_of_a_new_file(
    path: Path, step_2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, held, parked = filled(path)
    monkeypatch.setattr("fieldpost.site.buffer.schema.STEPS", [*STEPS, step_2])
    buffer = Buffer(path)
    assert taken(buffer) == sent
    assert buffer.depth().waiting == {Category.NOTIFICATION: 3, Category.EXTERNAL_CALL: 1}
    given_up, claimed = buffer.find(parked), buffer.find(held)
    assert isinstance(given_up, Message)
    assert isinstance(claimed, Message)
    assert given_up.status is MessageStatus.PARKED
    assert buffer.read(stored_calls.due_targets, Category.EXTERNAL_CALL, NOW) == [], (
        "the script that issued it still holds its claim"
    )
    settled = buffer.write(stored_calls.settle, claimed, Clear(201), NOW)
    assert settled is not None
    assert settled.is_delivered
    buffer.close()
    upgraded, new = connect(path), connect(path.with_name("new.db"))
    assert upgraded.execute(SHAPE).fetchall() == new.execute(SHAPE).fetchall()
    assert (upgraded.pragma("user_version"), upgraded.pragma("integrity_check")) == (schema_version(), "ok")
    assert schema_version() == 2


def test_an_upgrade_that_fails_leaves_the_file_at_its_version(
    path: Path, step_2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, _, _ = filled(path)
    step_2.write_text(f"{STEP_2} INSERT INTO nowhere VALUES (1);", encoding="utf-8")
    with monkeypatch.context() as upgrading:
        upgrading.setattr("fieldpost.site.buffer.schema.STEPS", [*STEPS, step_2])
        with pytest.raises(Unavailable):
            Buffer(path)
    buffer = Buffer(path)
    assert taken(buffer) == sent
    buffer.close()


def test_a_script_that_runs_the_older_version_still_sends_after_an_upgrade_that_allows_it(
    path: Path, step_2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Buffer(path)
    first = add(script, now=NOW)
    with monkeypatch.context() as upgrading:
        upgrading.setattr("fieldpost.site.buffer.schema.STEPS", [*STEPS, step_2])
        connect(path).close()
    second = add(script, now=NOW)
    assert taken(script) == [first, second]
    script.close()


def test_doctor_reads_an_older_file_without_changing_it(
    path: Path, step_2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path)
    monkeypatch.setattr("fieldpost.site.buffer.schema.STEPS", [*STEPS, step_2])
    connection = open_existing(path)
    contents = read_contents(connection)
    assert contents.messages == {"external_call": {"parked": 1, "pending": 1}, "notification": {"pending": 3}}
    assert connection.pragma("user_version") == 1
    connection.close()


def test_an_older_file_is_salvaged_into_the_tables_of_this_version(
    path: Path, step_2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, _, _ = filled(path)
    monkeypatch.setattr("fieldpost.site.buffer.schema.STEPS", [*STEPS, step_2])
    done = salvage(path, NOW)
    assert done.is_whole
    assert (done.kept["messages"], done.kept["calls"], done.kept["tracking"]) == (3, 2, 2)
    buffer = Buffer(path)
    assert taken(buffer) == sent
    assert buffer.read(stored_calls.due_targets, Category.EXTERNAL_CALL, NOW) == ["mes"], (
        "a salvaged file has no claims"
    )
    buffer.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_buffer_of_an_unreleased_layout_is_rejected_and_not_changed(path: Path, version: int) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL; CREATE TABLE messages (message_id TEXT PRIMARY KEY) STRICT")
    connection.pragma("user_version", version)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError) as caught:
        Buffer(path)
    assert caught.value.code == "buffer.unreleased"
    assert str(path.parent) in caught.value.message
    assert f"unreleased layout {version}, and this Fieldpost uses layout 1" in caught.value.message
    assert "start with a new folder" in caught.value.message
    checks = examine(path.parent, NOW).diagnosis.checks
    assert [check.detail for check in checks if check.name == "schema"] == [str(caught.value)]
    assert path.read_bytes() == before


def test_messages_of_both_kinds_are_distinguished_without_an_intact_tree(path: Path) -> None:
    clock = ManualClock()
    calls = Calls(path, clock)
    sent = [add(calls.buffer, "x" * 900) for _ in range(30)]
    called = [calls.issue() for _ in range(60)]
    calls.close()
    connection = connect(path)
    page = connection.pragma("page_size")
    roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'").fetchall())
    connection.close()
    content = bytearray(path.read_bytes())
    for table in ("messages", "calls"):
        # Of a tree without its root only the leaves are left.
        at = (roots[table] - 1) * page
        assert content[at] == TABLE_INTERIOR
        content[at : at + page] = bytes(page)
    path.write_bytes(content)
    salvage(path, clock.now())
    buffer = Buffer(path)
    assert {message.message_id for message in buffer.take(clock.now(), items_max=99, bytes_max=10**6)} == set(sent)
    assert buffer.depth().waiting == {Category.NOTIFICATION: 30, Category.EXTERNAL_CALL: 60}
    assert all(isinstance(buffer.find(name), Message) for name in called)
    buffer.close()


def test_neither_kind_hides_the_other_in_large_numbers(path: Path) -> None:
    clock = ManualClock()
    calls = Calls(path, clock)
    for _ in range(3):
        calls.parked()
        calls.put_off(calls.issue())
    first = add(calls.buffer, now=clock.now())
    calls.put_off(calls.issue("mes"))
    second = add(calls.buffer, now=clock.now())
    assert [m.message_id for m in calls.buffer.take(clock.now(), items_max=2, bytes_max=99)] == [first, second]
    assert [m.sequence for m in calls.buffer.take(clock.now(), items_max=2, bytes_max=99)] == [1, 2]
    assert calls.buffer.read(stored_calls.due_targets, Category.EXTERNAL_CALL, clock.now()) == ["erp", "mes"]
    calls.buffer.settle([(first, Clear()), (second, Clear())], clock.now())
    third = add(calls.buffer, now=clock.now())
    assert [m.message_id for m in calls.buffer.take(clock.now(), items_max=2, bytes_max=99)] == [third]
    calls.close()
