"""Central's front over a grown store in its own process, for `console`.

`python -m bench.console_central URL MICROSECONDS` prints its address, a session cookie, a token id and a link, and
serves until its input ends. Its clock starts at the time the store was grown. Nothing is dispatched, purged or sampled,
so the store stays unchanged except for the visitor's account.

Shared reads (`watch.shared_read`) work as in production. For a request with the header FIRST the clock jumps ahead, so
that no earlier read is shared.
"""

import asyncio
import socket
import sys
from datetime import datetime, timedelta

import uvloop
from argon2 import PasswordHasher
from sqlalchemy import Connection, text
from starlette.types import ASGIApp, Receive, Scope, Send

from bench import grown_beside
from bench.harness import log_to_nowhere
from fieldpost.central import adapters
from fieldpost.central.access.logins import Origin
from fieldpost.central.access.passwords import Passwords
from fieldpost.central.commands.sender import CommandSender
from fieldpost.central.ingest.mirror import MirrorOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.operate import Operate
from fieldpost.central.store.accounts import identities
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.watch.watch import Watch
from fieldpost.clock import SystemClock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.times import from_microseconds
from fieldpost.front.app import create_app
from fieldpost.front.server import CentralServer
from fieldpost.run.gc_tuning import set_aside

NAME = "bench"
PASSWORD = "a password for looking"
FIRST = "bench-first"
LEAP_S = 15.0


class LookClock(SystemClock):
    """Starts at a given time; the monotonic time can jump ahead."""

    def __init__(self, start: datetime) -> None:
        self._behind = super().now() - start
        self._leapt_s = 0.0

    def now(self) -> datetime:
        return super().now() - self._behind

    def monotonic(self) -> float:
        return super().monotonic() + self._leapt_s

    def leap(self) -> None:
        self._leapt_s += LEAP_S


class Leaping:
    """Jump ahead before each request with the header FIRST."""

    def __init__(self, app: ASGIApp, clock: LookClock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if any(name == FIRST.encode() for name, _ in scope.get("headers", ())):
            self._clock.leap()
        await self._app(scope, receive, send)


async def main(url: str, now: datetime) -> None:
    clock = LookClock(now)
    store = open_store(url, clock)
    passwords = Passwords(PasswordHasher(time_cost=1, memory_cost=64))
    operate = Operate.over(store, adapters.load(), clock, passwords=passwords)
    ingest = Ingest(store, clock)
    commands = CommandSender(store, ingest.mirrors, MirrorOptions().reconcile_interval_s, clock)
    app = create_app(operate, Watch.over(store, clock), ingest, commands)
    app.add_middleware(Leaping, clock=clock)
    server = CentralServer(app, socket.create_server(("127.0.0.1", 0)))
    serving = asyncio.create_task(server.serve())
    await store.write(_forget)
    hashed = await passwords.hash(PASSWORD)
    await store.write(identities.add_user, identities.UserRecord(NAME, hashed, Role.ADMIN.value, clock.now()))
    session = await operate.logins.log_in(NAME, PASSWORD, Origin("127.0.0.1", "bench"))
    token = await operate.tokens.add(Actor(NAME, Role.ADMIN), "bench", Role.VIEWER, life=timedelta(days=1))
    link = await operate.users.reset_password(Actor(NAME, Role.ADMIN), NAME)
    await server.ready()
    set_aside()
    print(server.url, session.token, token.token_id, link.token, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving
    await store.write(_forget)
    await store.close()


def _forget(conn: Connection) -> None:
    dialect = grown_beside.POSTGRESQL if conn.dialect.name == "postgresql" else grown_beside.SQLITE
    conn.execute(text(dialect.may_delete_audit))
    for statement in (
        "delete from login_links where user_name = :name",
        "delete from tokens where owner = :name",
        "delete from users where name = :name",
        "delete from audit where actor = :name and kind = 'operator_action'",
    ):
        conn.execute(text(statement), {"name": NAME})
    # Time begins anew with each run, and what is kept of logins would lie in the future.
    conn.execute(text("delete from login_delays"))


if __name__ == "__main__":
    log_to_nowhere()
    uvloop.run(main(sys.argv[1], from_microseconds(int(sys.argv[2]))))
