"""`enqueue`: durable `send()` of 519-byte rows by one caller, and by sixteen threads that share commits.

Reference: the same bytes written by hand into a plain SQLite table (id and text; apsw, WAL, synchronous FULL): one row
per commit for one caller; for sixteen, a queue and a thread that commits all waiting rows together. Ours: `send()`,
which checks the texts, creates the id, encodes the notification and writes it to the buffer.

Where the time goes for one caller (0.80 to 0.85 of the reference on a disk with fast sync): both write two pages per
commit and sync once. The remaining 25 µs are the checks, the id, the time, the encoding, the check that the file still
has the buffer's name (a salvage may have renamed it), and the committer. Without the sync all of it takes 7 µs: after a
sync the processor's instruction cache is cold, so the amount of code counts. Sixteen threads (0.71 to 0.83) pay for it
one after the other. Pages of 2,048 bytes gain 2 %, which is not worth a harder salvage of damaged files.
"""

import os
import queue
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import apsw

from bench.harness import Report, Stopwatch, compare
from bench.stores import Stores
from fieldpost import Site
from fieldpost.link.credentials import issue

THREADS = 16
ROW_BYTES = 519
ROUNDS = 21
"""Many short rounds, alternating: the cost of a sync varies over time and should vary for both alike."""
SUBJECT = "Pressure at pump 3 fell below 2.1 bar"


async def run(report: Report, _: Stores, quick: bool) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="fieldpost-bench-") as folder,
        Site.create(Path(folder) / "site", "plant", "http://127.0.0.1:9", issue("site", os.urandom(40)).text) as site,
    ):
        recipients = site.notify.to("operators")
        body = "x" * (ROW_BYTES - _frame_bytes(site))

        def send() -> None:
            recipients.send(SUBJECT, body)

        for callers, count in ((1, 400 if quick else 1_000), (THREADS, 1_600 if quick else 4_000)):
            raw = Raw(Path(folder) / f"raw-{callers}.db", is_grouped=callers > 1)

            async def ours(callers: int = callers, count: int = count) -> float:
                return rate_of(send, callers, count)

            async def reference(raw: Raw = raw, callers: int = callers, count: int = count) -> float:
                return rate_of(raw.add, callers, count)

            notes = f"{ROW_BYTES}-byte rows, each on disk before the call returns"
            name = "enqueue, 1 caller" if callers == 1 else f"enqueue, {callers} threads"
            report.add(await compare(name, ours, reference, ROUNDS, "rows/s", notes))
            raw.close()


def rate_of(work: Callable[[], object], callers: int, count: int) -> float:
    """Calls per second of this many threads."""

    def repeat() -> None:
        for _ in range(count // callers):
            work()

    threads = [threading.Thread(target=repeat) for _ in range(callers - 1)]
    watch = Stopwatch()
    for thread in threads:
        thread.start()
    repeat()
    for thread in threads:
        thread.join()
    return watch.rate(count)


def _frame_bytes(site: Site) -> int:
    """Size of the buffered row of a notification with an empty body."""
    message = site._buffer.find(site.notify.to("operators").send(SUBJECT, ""))
    assert message is not None
    return len(message.payload.encode())


class Raw:
    """Reference: one table and one connection, with group commit by a thread."""

    def __init__(self, path: Path, *, is_grouped: bool) -> None:
        self._connection = apsw.Connection(str(path))
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("CREATE TABLE rows (id TEXT PRIMARY KEY, payload TEXT NOT NULL)")
        self._payload = "x" * ROW_BYTES
        self._count = 0
        self._waiting: queue.SimpleQueue[threading.Lock | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._commit, daemon=True) if is_grouped else None
        if self._thread is not None:
            self._thread.start()

    def add(self) -> None:
        if self._thread is None:
            self._insert()
            return
        done = threading.Lock()
        done.acquire()
        self._waiting.put(done)
        done.acquire()

    def close(self) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
        self._connection.close()

    def _commit(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch: list[threading.Lock] = [first]
            self._connection.execute("BEGIN IMMEDIATE")
            self._insert()
            while not self._waiting.empty() and (more := self._waiting.get()) is not None:
                batch.append(more)
                self._insert()
            self._connection.execute("COMMIT")
            for done in batch:
                done.release()

    def _insert(self) -> None:
        self._count += 1
        self._connection.execute("INSERT INTO rows VALUES (?, ?)", (f"{self._count:036}", self._payload))
