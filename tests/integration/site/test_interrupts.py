"""A thread that is interrupted while it writes the buffer ends its own call, and keeps nobody else waiting."""

import ctypes
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

import apsw
import pytest

from fieldpost.core.ids import new_id
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.committer import Committer
from support.site_writers import add, ids_in, start, until

INSERT = """INSERT INTO messages (message_id, category, target, payload, created_at)
    VALUES (?, 'notification', 'central', '{}', 0)"""
INTERRUPTS = 400
DEADLINE_S = 30

# The main thread is the heir, and waits for the connection, which a reader has; there a real SIGINT strikes it.
HEIR = """
import os, signal, sys, threading
from pathlib import Path
from fieldpost.site.buffer.committer import Committer
from fieldpost.site.buffer.rows import Rows
from support.site_writers import until
rows = Rows("messages", ("message_id", "category", "target", "payload", "created_at"))
def insert(name):
    committer.insert(rows, (name, "notification", "central", "{}", 1))
committer = Committer.shared(Path(sys.argv[1]))
lead = committer._queue
committing, may_commit, reading, may_end = (threading.Event() for _ in range(4))
def commit_slowly(cursor):
    connection = cursor.connection
    def pause():
        connection.set_commit_hook(None)
        committing.set()
        return not may_commit.wait(30)
    connection.set_commit_hook(pause)
def read_long(cursor):
    reading.set()
    may_end.wait(30)
def follow():
    until(lambda: len(lead._queue) == 1)
    insert("follower")
def conduct():
    committing.wait(30)
    until(lambda: len(lead._queue) == 2)
    # The leader gives the connection back before it passes the lead on: the reader comes in between.
    with lead._mutex:
        may_commit.set()
        reading.wait(30)
    main = threading.main_thread().ident
    until(lambda: sys._current_frames()[main].f_code.co_name == "_wait_for")
    signal.pthread_kill(main, signal.SIGINT)
first = threading.Thread(target=committer.write, args=(commit_slowly,))
first.start()
committing.wait(30)
others = [threading.Thread(target=work) for work in (lambda: committer.read(read_long), follow, conduct)]
for thread in others:
    thread.start()
try:
    insert("heir")
except KeyboardInterrupt:
    print("interrupted", flush=True)
may_end.set()
for thread in (first, *others):
    thread.join(20)
    if thread.is_alive():
        print("stuck", flush=True)
        os._exit(1)
insert("later")
committer.release()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer.db"


class Interrupt(BaseException):
    """What the test raises into threads."""


def test_interrupted_successor_passes_on_the_lead(path: Path) -> None:
    script = start(HEIR, path)
    output, _ = script.communicate(timeout=90)
    assert (output, script.returncode) == ("interrupted\n", 0)
    assert ids_in(path) == {"follower", "later"}


def test_an_interrupt_of_the_leader_ends_its_own_write_and_no_other_of_the_batch(path: Path) -> None:
    Buffer(path).close()
    committer = Committer(path)
    reading, may_end = threading.Event(), threading.Event()

    def read_long(_: apsw.Cursor) -> None:
        reading.set()
        may_end.wait(DEADLINE_S)

    def insert(name: str) -> Callable[[apsw.Cursor], None]:
        return lambda cursor: cursor.execute(INSERT, (name,)) and None

    def give_up(cursor: apsw.Cursor) -> None:
        cursor.execute(INSERT, ("half",))
        raise Interrupt

    with ThreadPoolExecutor(4) as pool:
        reader = pool.submit(committer.read, read_long)
        reading.wait(DEADLINE_S)
        writers = []
        for number, work in enumerate((insert("before"), give_up, insert("behind")), 1):
            writers.append(pool.submit(committer.write, work))
            until(lambda number=number: len(committer._queue._queue) == number)
        may_end.set()
        reader.result()
        # The first one led; its own work is whole, but it was struck in the middle of the batch.
        assert [type(writer.exception(DEADLINE_S)) for writer in writers] == [Interrupt, Interrupt, type(None)]
    committer.close()
    assert ids_in(path) == {"behind"}


def test_transaction_left_open_by_an_interrupted_reader_gets_no_row(path: Path) -> None:
    buffer = Buffer(path)
    first = add(buffer)

    def begin(cursor: apsw.Cursor) -> None:
        cursor.execute("BEGIN")
        raise Interrupt

    with pytest.raises(Interrupt):
        buffer.read(begin)
    second = add(buffer)
    assert ids_in(path) == {first, second}
    buffer.close()


def test_threads_interrupted_anywhere_lose_no_confirmed_row_and_block_no_other(path: Path) -> None:
    """Each sends on and on, and is struck at whatever step it is in; never again before it has recovered."""
    buffer = Buffer(path)
    stop = threading.Event()
    begun: list[str] = []
    confirmed: list[str] = []
    recovered: SimpleQueue[None] = SimpleQueue()

    def send() -> None:
        is_struck = False
        while not stop.is_set():
            try:
                # Told from within, where the next one is caught too.
                if is_struck:
                    is_struck = False
                    recovered.put(None)
                while not stop.is_set():
                    message_id = new_id(datetime.now(UTC), random.randbytes(10))
                    begun.append(message_id)
                    confirmed.append(add(buffer, message_id=message_id))
            except Interrupt:
                is_struck = True

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    chance = random.Random(7)
    for _ in range(INTERRUPTS):
        target = chance.choice(threads)
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(target.ident or 0), ctypes.py_object(Interrupt)
        )
        # None comes if it waits for a leader that is gone.
        recovered.get(timeout=DEADLINE_S)
    stop.set()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    last = add(buffer)
    buffer.close()
    there = ids_in(path)
    assert {*confirmed, last} <= there <= {*begun, last}
    assert len(confirmed) > INTERRUPTS
