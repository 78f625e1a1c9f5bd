"""Notifications and cached calls in tables of their own: neither hides the other, an older file comes over whole."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from fieldpost.core.sites.forwarding import Clear
from fieldpost.core.sites.message import Category, Message, MessageStatus
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.calls import _INSERT
from fieldpost.site.buffer.connection import connect, open_existing
from fieldpost.site.repair.btrees import TABLE_INTERIOR
from fieldpost.site.repair.doctor import read_contents
from fieldpost.site.repair.salvage import salvage
from fieldpost.testing import ManualClock
from support.calls import Calls
from support.site_writers import add

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
SOON = int((NOW + timedelta(minutes=5)).timestamp() * 1_000_000)
VERSION_2 = (Path(__file__).parents[2] / "support" / "buffer_version_2.sql").read_text(encoding="utf-8")
# In the order of their commits: a call held by the script that made it, and others between the notifications.
ROWS = f"""
INSERT INTO messages (message_id, category, call_id, target, payload, status, retry_count, last_error,
    created_at, due_at, claimed_by, claim_token, claimed_until) VALUES
    ('n-1', 'notification', NULL, 'central', '{{}}', 'pending', 0, NULL, 1, 0, NULL, 0, NULL),
    ('held', 'external_call', 'held', 'erp', '{{"held":1}}', 'pending', 0, NULL, 2, 0, 'script', 3, {SOON}),
    ('n-2', 'notification', NULL, 'central', '{{"é":1}}', 'retrying', 7, 'not now', 3, 0, NULL, 0, NULL),
    ('write', 'database_write', 'write', 'hall', '{{}}', 'retrying', 2, 'locked', 4, 0, NULL, 5, NULL),
    ('parked', 'external_call', 'parked', 'erp', '{{}}', 'parked', 9, '503', 5, 0, NULL, 6, NULL),
    ('n-3', 'notification', NULL, 'central', '{{}}', 'pending', 0, NULL, 6, 0, NULL, 0, NULL);
INSERT INTO tracking (call_id, category, target_summary, status, retry_count, last_error, created_at, updated_at,
    change_sequence) VALUES
    ('held', 'external_call', 'erp POST /', 'pending', 0, NULL, 2, 2, 1),
    ('write', 'database_write', 'hall', 'retrying', 2, 'locked', 4, 4, 2),
    ('parked', 'external_call', 'erp POST /', 'parked', 9, '503', 5, 5, 3);
PRAGMA user_version = 2;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer.db"


@pytest.fixture
def older(path: Path) -> Path:
    """A file of version 2 with messages of each category."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(VERSION_2 + ROWS)
    connection.close()
    return path


def taken(buffer: Buffer) -> list[str]:
    return [message.message_id for message in buffer.take(NOW, items_max=10, bytes_max=10_000)]


def test_a_file_of_version_2_comes_over_with_every_row_and_every_claim(older: Path) -> None:
    buffer = Buffer(older)
    assert taken(buffer) == ["n-1", "n-2", "n-3"]
    again, held, parked = (buffer.find(name) for name in ("n-2", "held", "parked"))
    assert isinstance(again, Message)
    assert isinstance(held, Message)
    assert isinstance(parked, Message)
    assert (again.payload, again.retry_count, again.last_error) == ('{"é":1}', 7, "not now")
    assert (parked.status, parked.retry_count, parked.last_error) == (MessageStatus.PARKED, 9, "503")
    assert buffer.depth().waiting == {
        Category.NOTIFICATION: 3,
        Category.EXTERNAL_CALL: 1,
        Category.DATABASE_WRITE: 1,
    }, "what is parked waits for nobody but a person"
    assert buffer.due_targets(Category.EXTERNAL_CALL, NOW) == [], "the script that made it holds it still"
    assert buffer.due_targets(Category.DATABASE_WRITE, NOW) == ["hall"]
    assert (held.payload, held.claim_token) == ('{"held":1}', 3)
    settled = buffer.settle_call(held, Clear(201), NOW)
    assert settled is not None
    assert settled.is_delivered
    buffer.close()
    new = connect(older.with_name("new.db"))
    shapes = [
        [" ".join(line.partition("--")[0] for line in sql.splitlines()).split() for (sql,) in c.execute(SHAPE)]
        for c in (connect(older), new)
    ]
    assert shapes[0] == shapes[1]
    assert connect(older).pragma("integrity_check") == "ok"


SHAPE = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name"


def test_a_script_that_runs_the_older_version_still_sends_and_is_refused_a_call_rather_than_lose_it(
    older: Path,
) -> None:
    script = apsw.Connection(str(older))
    send = """INSERT INTO messages (message_id, category, call_id, target, payload, created_at)
        VALUES (?, 'notification', NULL, 'central', '{}', 7)"""
    script.execute(send, ("before",))
    buffer = Buffer(older)
    script.execute(send, ("after",))
    assert taken(buffer) == ["n-1", "n-2", "n-3", "before", "after"]
    parameters = {"category": "external_call", "target": "erp", "payload": "{}", "created_at": 8, "claimant": "script"}
    with pytest.raises(apsw.ConstraintError):
        script.execute(
            _INSERT.replace("INTO calls", "INTO messages"), {**parameters, "message_id": "call", "until": SOON}
        )
    script.close()
    buffer.close()


def test_the_doctor_reads_an_older_file_as_it_is(older: Path) -> None:
    connection = open_existing(older)
    contents = read_contents(connection)
    assert contents.messages == {
        "database_write": {"retrying": 1},
        "external_call": {"parked": 1, "pending": 1},
        "notification": {"pending": 2, "retrying": 1},
    }
    assert connection.pragma("user_version") == 2
    connection.close()


def test_an_older_file_is_salvaged_into_the_tables_of_this_version(older: Path) -> None:
    done = salvage(older, NOW)
    assert done.is_whole
    assert (done.kept["messages"], done.kept["calls"], done.kept["tracking"]) == (3, 3, 3)
    buffer = Buffer(older)
    assert taken(buffer) == ["n-1", "n-2", "n-3"]
    assert buffer.due_targets(Category.EXTERNAL_CALL, NOW) == ["erp"], "nobody holds anything in a salvaged file"
    buffer.close()


def test_messages_of_both_kinds_are_told_apart_where_no_tree_says_whose_they_are(path: Path) -> None:
    clock = ManualClock()
    calls = Calls(path, clock)
    sent = [add(calls.buffer, "x" * 900) for _ in range(30)]
    called = [calls.issue() for _ in range(30)]
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
    assert buffer.depth().waiting == {Category.NOTIFICATION: 30, Category.EXTERNAL_CALL: 30}
    assert all(isinstance(buffer.find(name), Message) for name in called)
    buffer.close()


def test_neither_kind_hides_the_other_however_many_there_are(path: Path) -> None:
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
    assert calls.buffer.due_targets(Category.EXTERNAL_CALL, clock.now()) == ["erp", "mes"]
    calls.buffer.settle([(first, Clear()), (second, Clear())], clock.now())
    third = add(calls.buffer, now=clock.now())
    assert [m.message_id for m in calls.buffer.take(clock.now(), items_max=2, bytes_max=99)] == [third]
    calls.close()
