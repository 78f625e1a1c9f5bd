"""A process that stops itself (SIGSTOP) between a statement and its COMMIT, and prints its result when it goes on.

`python frozen_node.py URL LEASE_S (lead|claim|prepare)`
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from sqlalchemy import Connection, text

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.figures import leases
from fieldpost.central.store.notifications import claims
from fieldpost.core.delivery.lanes import Lane

NODE = "frozen"


def lead(conn: Connection, lease_s: float) -> int:
    return int(leases.take(conn, leases.LEADER, NODE, lease_s=lease_s, now=None) is not None)


def claim(conn: Connection, lease_s: float) -> int:
    claimed = claims.claim_due(
        conn, NODE, Lane.FRESH, limit=10, per_key=10, busy={}, after="", lease_s=lease_s, now=None
    )
    return len(claimed)


class Freezing:
    """A transaction function that stops the process the first time that it runs, after its statement; `amid`: while the
    driver prepares the next one, which the server does not count as idle."""

    def __init__(self, function: Callable[[Connection, float], int], *, amid: bool = False) -> None:
        self.function = function
        self.runs = 0
        self._amid = amid

    def __call__(self, conn: Connection, lease_s: float) -> int:
        taken = self.function(conn, lease_s)
        self.runs += 1
        if self.runs == 1 and self._amid:
            asyncio.get_running_loop().call_soon(stop)
            conn.execute(text("select 'a statement that this connection has not prepared yet'"))
        elif self.runs == 1:
            stop()
        return taken


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


async def main(url: str, lease_s: float, what: str) -> None:
    store = open_store(url, lease_s=lease_s)
    freezing = Freezing(lead if what == "lead" else claim, amid=what == "prepare")
    try:
        taken = await store.write(freezing, lease_s)
    finally:
        await store.close()
    print(freezing.runs, taken)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), sys.argv[3]))
