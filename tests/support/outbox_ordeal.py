"""An outbox under stress: many writers that commit, roll back, wait, deadlock and die, and relays that are killed."""

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fieldpost.outbox import Outbox
from fieldpost.outbox.tables import OutboxDatabase
from support.outbox_apps import TOPIC, AppDatabase, Relaying
from support.relay_process import RelayProcess

LATE_S = 0.3


class OutboxWriters:
    """Threads that write events until they are stopped. Each has a connection of its own."""

    def __init__(self, app: AppDatabase, count: int, seed: int) -> None:
        self.app = app
        self.committed: set[str] = set()
        self.undone: set[str] = set()
        """Events whose transaction or savepoint was rolled back, or whose connection ended before its commit."""
        self.deadlocks = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        app.execute("create table accounts (id integer primary key, amount integer not null)")
        app.execute("insert into accounts values " + ", ".join(f"({number}, 0)" for number in range(2 * count)))
        self._threads = [threading.Thread(target=self._write, args=(n, random.Random(seed + n))) for n in range(count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a writer hangs"

    def _write(self, number: int, chance: random.Random) -> None:
        deadlock = partial(self._deadlock, number)
        acts = (self._commit, self._commit, self._roll_back, self._savepoint, self._late, deadlock, self._die)
        while not self._stopping.is_set():
            connection = self.app.connect()
            try:
                chance.choice(acts)(connection, chance)
            finally:
                with suppress(Exception):
                    connection.close()
            time.sleep(chance.random() * 0.5)

    def _add(self, connection: Any, chance: random.Random) -> str:
        key = chance.choice((None, chance.choice("abcdefgh")))
        return Outbox.add(connection, TOPIC, {"message": "stress"}, order_key=key)

    def _commit(self, connection: Any, chance: random.Random) -> None:
        added = {self._add(connection, chance) for _ in range(chance.randint(1, 3))}
        connection.commit()
        with self._lock:
            self.committed |= added

    def _roll_back(self, connection: Any, chance: random.Random) -> None:
        undone = self._add(connection, chance)
        connection.rollback()
        with self._lock:
            self.undone.add(undone)

    def _savepoint(self, connection: Any, chance: random.Random) -> None:
        kept = self._add(connection, chance)
        cursor = connection.cursor()
        cursor.execute("savepoint inner_one")
        undone = self._add(connection, chance)
        cursor.execute("rollback to savepoint inner_one")
        connection.commit()
        with self._lock:
            self.committed.add(kept)
            self.undone.add(undone)

    def _late(self, connection: Any, chance: random.Random) -> None:
        """Commit long after the id and the time of creation were made."""
        late = self._add(connection, chance)
        time.sleep(0.02 if self.app.kind is OutboxDatabase.SQLITE else LATE_S)
        connection.commit()
        with self._lock:
            self.committed.add(late)

    def _deadlock(self, number: int, connection: Any, chance: random.Random) -> None:
        """Lock two rows of this writer in either order on two connections; the database rolls one of them back."""
        if self.app.kind is OutboxDatabase.SQLITE:  # it has one writer at a time
            self._commit(connection, chance)
            return
        other = self.app.connect()
        try:
            first, second = 2 * number, 2 * number + 1
            added, added_by_other = self._add(connection, chance), self._add(other, chance)
            self._lock_account(connection, first)
            self._lock_account(other, second)
            crossing = threading.Thread(target=self._cross, args=(other, first, added_by_other))
            crossing.start()
            self._cross(connection, second, added)
            crossing.join()
        finally:
            with suppress(Exception):
                other.close()

    def _cross(self, connection: Any, account: int, added: str) -> None:
        try:
            self._lock_account(connection, account)
            connection.commit()
        except Exception:
            with suppress(Exception):
                connection.rollback()
            with self._lock:
                self.deadlocks += 1
                self.undone.add(added)
        else:
            with self._lock:
                self.committed.add(added)

    def _lock_account(self, connection: Any, account: int) -> None:
        cursor = connection.cursor()
        if self.app.kind is OutboxDatabase.POSTGRESQL:
            cursor.execute("set local deadlock_timeout = '20ms'")
        cursor.execute(f"update accounts set amount = amount + 1 where id = {account}")

    def _die(self, connection: Any, chance: random.Random) -> None:
        """The connection ends without a commit, as when the process is killed."""
        undone = self._add(connection, chance)
        if self.app.kind is OutboxDatabase.POSTGRESQL:
            connection.pgconn.finish()
        elif self.app.kind is OutboxDatabase.MARIADB:
            connection._force_close()
        else:
            connection.close()
        with self._lock:
            self.undone.add(undone)


async def endure(
    relaying: Relaying, folder: Path, seconds: float, *, writers: int = 50, seed: int = 1
) -> OutboxWriters:
    """Let writers and three relays work, one of which is killed every second; then wait until all rows are SENT."""
    app = relaying.app
    stress = OutboxWriters(app, writers, seed)
    options = relaying.options(lease_s=2.0, timeout_s=1.0, batch_size=20)
    relays: Sequence[RelayProcess] = [RelayProcess(options, folder) for _ in range(3)]
    for relay in relays:
        await relay.start()
    try:
        await asyncio.to_thread(stress.start)
        killed = 0
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end or killed < seconds / 2:  # restarts are slow on a busy machine
                await asyncio.sleep(1.0)
                victim = relays[killed % len(relays)]
                await victim.kill()
                await victim.start()
                killed += 1
        finally:
            await asyncio.to_thread(stress.stop)
        await app.until(lambda: app.statuses().keys() <= {"SENT"}, 60 + seconds)
    finally:
        for relay in relays:
            await relay.kill()
    return stress


async def check(relaying: Relaying, stress: OutboxWriters) -> None:
    """Every committed event is exactly one event at central, and no other is."""
    rows = {str(row[0]) for row in relaying.app.query("select event_outbox_id from event_outbox")}
    assert rows == stress.committed
    events = await relaying.events()
    assert len(events) == len(set(events))
    assert set(events) == stress.committed
    assert not set(events) & stress.undone
    assert len(stress.committed) > 20
    assert len(stress.undone) > 5
    assert stress.deadlocks or relaying.app.kind is OutboxDatabase.SQLITE
