"""Many threads, many processes, forks and kills: what `add` has confirmed is there, and nothing is there by halves."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from fieldpost.core.errors import Conflict, Unavailable
from fieldpost.core.ids import new_id
from fieldpost.site.buffer import committer
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.commit_queue import Write, apply_all
from fieldpost.site.buffer.committer import Committer
from fieldpost.site.buffer.connection import connect
from fieldpost.site.buffer.rows import Rows
from support.site_writers import ENDLESS, MANY, add, ids_in, start


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer.db"


@pytest.mark.req("DEC-24")
def test_threads_that_write_together_share_commits(path: Path) -> None:
    buffer = Buffer(path)
    committer = Committer.shared(path)
    ready = threading.Barrier(16)

    def work() -> list[str]:
        ready.wait()
        return [add(buffer) for _ in range(50)]

    commits_before = committer.change_mark()[1]
    with ThreadPoolExecutor(16) as pool:
        ids = [message_id for future in [pool.submit(work) for _ in range(16)] for message_id in future.result()]
    commits = committer.change_mark()[1] - commits_before
    committer.release()
    buffer.close()
    assert len(set(ids)) == 800
    assert ids_in(path) == set(ids)
    assert commits < 800


@pytest.mark.req("DEC-24")
def test_opening_a_site_twice_in_a_process_uses_one_connection(path: Path) -> None:
    first, second = Buffer(path), Buffer(path)
    assert first._committer is second._committer
    first.close()
    message_id = add(second)
    second.close()
    assert ids_in(path) == {message_id}


@pytest.mark.parametrize("is_taken_along", [True, False])
def test_row_written_to_a_salvaged_file_is_in_the_new_one_once(path: Path, is_taken_along: bool) -> None:
    rows = Rows("messages", ("message_id", "payload", "created_at", "category", "target"))
    row = (new_id(datetime.now(UTC), os.urandom(10)), "{}", 0, "notification", "central")
    connect(path).close()
    committer = Committer.shared(path)
    for suffix in ("-shm", "-wal", ""):
        Path(f"{path}{suffix}").rename(f"{path}.aside{suffix}")
    fresh = connect(path)
    if is_taken_along:
        rows.insert(fresh.cursor(), (row,))
    fresh.close()
    committer.insert(rows, row)
    with pytest.raises(apsw.ConstraintError):
        committer.insert(rows, row)
    committer.release()
    assert ids_in(path) == {row[0]}


def test_row_that_cannot_be_written_is_rejected_also_after_a_salvage(path: Path) -> None:
    incomplete = Rows("messages", ("message_id",))
    connect(path).close()
    committer = Committer.shared(path)
    for suffix in ("-shm", "-wal", ""):
        Path(f"{path}{suffix}").rename(f"{path}.aside{suffix}")
    with pytest.raises(apsw.ConstraintError):
        committer.insert(incomplete, ("one",))
    committer.release()


def test_error_of_one_caller_fails_no_other(path: Path) -> None:
    """All in one batch: they queue up while another process holds the file."""
    buffer = Buffer(path)
    taken = add(buffer)
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    fresh = [new_id(datetime.now(UTC), os.urandom(10)) for _ in range(10)]
    with ThreadPoolExecutor(11) as pool:
        clash = pool.submit(add, buffer, "{}", taken)
        others = [pool.submit(add, buffer, "{}", message_id) for message_id in fresh]
        other.execute("COMMIT")
        with pytest.raises(Conflict):
            clash.result()
        assert [future.result() for future in others] == fresh
    other.close()
    buffer.close()
    assert ids_in(path) == {taken, *fresh}


def test_several_statements_are_committed_together_or_not_at_all(path: Path) -> None:
    Buffer(path).close()
    committer = Committer(path)
    insert = """INSERT INTO messages (message_id, category, target, payload, created_at)
        VALUES (?, 'notification', 'central', '{}', 0)"""

    def half(cursor: apsw.Cursor) -> None:
        cursor.execute(insert, ("half",))
        raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        committer.write(half)
    committer.write(lambda cursor: cursor.execute(insert, ("whole",)))
    committer.close()
    assert ids_in(path) == {"whole"}


def test_a_failed_batch_leaves_nothing_and_the_next_one_works(path: Path) -> None:
    Buffer(path).close()
    committer = Committer(path)
    insert = """INSERT INTO messages (message_id, category, target, payload, created_at)
        VALUES (?, 'notification', 'central', '{}', 0)"""

    def fail(cursor: apsw.Cursor) -> None:
        cursor.execute(insert, ("lost",))
        raise apsw.FullError("the disk is full")

    with pytest.raises(Unavailable) as caught:
        committer.write(fail)
    assert caught.value.code == "buffer.full"
    committer.write(lambda cursor: cursor.execute(insert, ("kept",)))
    committer.close()
    assert ids_in(path) == {"kept"}


def test_interrupt_during_a_commit_does_not_block_the_others(path: Path) -> None:
    Buffer(path).close()
    committer = Committer(path)

    def interrupt(cursor: apsw.Cursor) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        committer.write(interrupt)
    assert committer.write(lambda cursor: 7) == 7
    committer.close()


@pytest.mark.req("DEC-24")
def test_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    """They also race to make the file."""
    writers = [start(MANY, path) for _ in range(4)]
    ids = [message_id for writer in writers for message_id in writer.communicate()[0].split()]
    assert len(set(ids)) == 240
    assert ids_in(path) == set(ids)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.req("DEC-24")
def test_no_connection_crosses_a_fork(path: Path) -> None:
    """Each side goes on with a connection of its own; the parent closing its does not take away the child's log."""
    buffer = Buffer(path)
    before = add(buffer)
    to_child, from_parent = os.pipe()
    to_parent, from_child = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(from_child, add(buffer).encode())
            os.read(to_child, 1)
            os.write(from_child, add(buffer).encode())
            code = 0
        finally:
            os._exit(code)
    first = os.read(to_parent, 100).decode()
    own = add(buffer)
    buffer.close()
    assert ids_in(path) == {before, first, own}
    os.write(from_parent, b"x")
    second = os.read(to_parent, 100).decode()
    assert os.waitpid(child, 0)[1] == 0
    assert ids_in(path) == {before, first, own, second}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("reopens", [False, True], ids=["write", "open-write-close"])
def test_a_fork_in_the_middle_of_other_threads_writes_leaves_the_child_able_to_write(path: Path, reopens: bool) -> None:
    """Also while another thread holds the lock of the registry of open buffers, or waits for it."""
    buffer = Buffer(path)
    stop = threading.Event()
    ids: list[str] = []

    def add_one() -> str:
        mine = Buffer(path) if reopens else buffer
        try:
            return add(mine)
        finally:
            if reopens:
                mine.close()

    def work() -> None:
        while not stop.is_set():
            ids.append(add_one())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(5):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(60)
                os.write(writer, "".join(add_one() for _ in range(2)).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        children.append((child, reader))
    for child, reader in children:
        sent = os.read(reader, 100).decode()
        ids += [sent[:36], sent[36:]]
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads:
        thread.join()
    buffer.close()
    assert ids_in(path) == set(ids)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_waits_for_the_thread_that_opens_a_buffer(path: Path) -> None:
    """Its lock is free again in the child."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with committer._registry_lock:
            held.set()
            release.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    threading.Timer(0.2, release.set).start()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            buffer = Buffer(path)
            add(buffer)
            buffer.close()
            code = 0
        finally:
            os._exit(code)
    assert release.is_set(), "the fork waited"
    assert os.waitpid(child, 0)[1] == 0
    holder.join()
    assert len(ids_in(path)) == 1


@pytest.mark.fault(1)
@pytest.mark.req("API-01", "DEC-01", "DEC-02")
def test_every_id_that_a_killed_writer_had_returned_is_in_the_buffer(path: Path) -> None:
    returned: set[str] = set()
    for kill_after in (1, 40, 90, 200, 333):
        writer = start(ENDLESS, path)
        assert writer.stdout is not None
        for _ in range(kill_after):
            returned.add(writer.stdout.readline().strip())
        writer.send_signal(signal.SIGKILL)
        # The last line may have been cut off by the kill.
        returned.update(writer.stdout.read().split("\n")[:-1])
        writer.wait()
        writer.stdout.close()
    assert len(returned) > 600
    assert ids_in(path) >= returned


def test_invalid_row_of_a_shared_commit_fails_alone(path: Path) -> None:
    rows = Rows("messages", ("message_id", "category", "target", "payload", "created_at"))

    def turn(message_id: str) -> Write[None]:
        return Write(None, True, rows, (message_id, "notification", "central", "{}", 1))

    Buffer(path).close()
    committer = Committer(path)
    turns = [turn(message_id) for message_id in ("a", "b", "a", *(f"n{number}" for number in range(70)))]
    committer.write(lambda cursor: apply_all(cursor, turns))
    committer.close()
    assert [isinstance(one.error, apsw.ConstraintError) for one in turns] == [False, False, True, *[False] * 70]
    assert ids_in(path) == {"a", "b", *(f"n{number}" for number in range(70))}
