"""Reading a buffer without SQLite: the same rows as SQLite sees, and whatever the bytes are, an end and no surprise."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import apsw
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldpost.site.buffer.connection import connect
from fieldpost.site.buffer.file_pages import Pages, judge_log
from fieldpost.site.repair.btrees import Trees
from fieldpost.site.repair.salvage import salvage

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
VALUES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=40) | st.binary(max_size=40)
SIZES = st.integers(0, 9000)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(VALUES, SIZES, VALUES), max_size=40),
    kept=st.integers(1, 5),
    checkpointed=st.integers(0, 40),
)
def test_salvage_of_an_intact_file_finds_the_rows_of_sqlite(
    rows: list[tuple[object, int, object]], kept: int, checkpointed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.db"
        connection = apsw.Connection(str(path))
        connection.pragma("journal_mode", "wal")
        connection.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, a, long TEXT, b)")
        connection.execute("CREATE INDEX things_by_b ON things (b)")
        for number, (a, size, b) in enumerate(rows):
            connection.execute("INSERT INTO things VALUES (?, ?, ?, ?)", (number * 7, a, "é" * size, b))
            if number == checkpointed:
                connection.execute("PRAGMA wal_checkpoint")
        connection.execute("DELETE FROM things WHERE id % ? = 1", (kept,))
        expected = connection.execute("SELECT * FROM things ORDER BY id").fetchall()
        by_b = sorted(map(repr, connection.execute("SELECT b, id FROM things")))
        # Closing would move the log into the file. Nobody else is there whom dropped locks could harm.
        pages = Pages(path, path.with_name("some.db-wal"))
        trees = Trees(pages)
        roots = {row.values[1]: row.values[3] for row in trees.rows(1)}
        found = [(row.row_id, *row.values[1:]) for row in trees.rows(roots["things"])]
        indexed = sorted(repr(tuple(row.values)) for row in trees.rows(roots["things_by_b"]))
        damage = judge_log(path.with_name("some.db-wal")).damage
        orphans = list(trees.orphans())
        pages.close()
        connection.close()
    assert found == expected
    assert indexed == by_b
    assert (trees.damaged_pages, trees.damaged_cells, damage, orphans) == (set(), 0, None, [])


@settings(max_examples=25, deadline=None)
@given(
    damage=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=64)), min_size=1, max_size=12),
    in_log=st.booleans(),
    length=st.floats(0, 1),
)
def test_salvage_ends_for_any_bytes(damage: list[tuple[float, bytes]], in_log: bool, length: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buffer.db"
        source = Path(folder) / "source.db"
        writer = connect(source)
        insert = """INSERT INTO messages (message_id, category, target, payload, created_at)
            VALUES (?, 'notification', 'central', ?, 0)"""
        for number in range(30):
            writer.execute(insert, (f"id-{number}", "x" * 150 * number))
            if number == 20:
                writer.execute("PRAGMA wal_checkpoint")
        log = source.with_name("source.db-wal").read_bytes()
        content = source.read_bytes()
        writer.close()
        parts = [bytearray(content), bytearray(log)]
        spoilt = parts[int(in_log)]
        for place, bytes_ in damage:
            at = int(place * (len(spoilt) - 1))
            spoilt[at : at + len(bytes_)] = bytes_
        del spoilt[max(1, int(len(spoilt) * max(length, 0.3))) :]
        path.write_bytes(parts[0])
        path.with_name("buffer.db-wal").write_bytes(parts[1])
        done = salvage(path, NOW)
        fresh = connect(path)
        assert fresh.pragma("integrity_check") == "ok"
        assert fresh.execute("SELECT count(*) FROM messages").fetchall() == [(done.kept["messages"],)]
        fresh.close()
        assert done.set_aside.read_bytes() == bytes(parts[0])
