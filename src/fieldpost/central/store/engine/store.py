"""The protocol of the central store, which both databases implement.

A transaction is a plain function on a synchronous Connection, written once for both databases: `write` runs it and
commits, `read` runs it on a connection that cannot write. A function may run twice, after a transient failure, and must
have the same effect as if it ran once.

A client deletes its copy when central answers that the data is stored, so such an answer needs a commit that the
synchronous standby has, also if the rows were there already. `write` waits for that even if the function changes
nothing; an answer from rows that were only read goes through `confirm`.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from fieldpost.central.store.engine.wake import Wake
from fieldpost.core.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")
Transaction = Callable[Concatenate[Connection, P], T]


class Store(Protocol):
    """The central store, on either database."""

    url: str
    wake: Wake
    last_failure: Unavailable | None
    """Why the last write failed; None after one that succeeded. A node writes its heartbeat every few seconds."""

    async def write(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function in a transaction and commit it durably; Unavailable while the database is."""

    async def write_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`write` for a function that is a single statement, which PostgreSQL commits without BEGIN and COMMIT.

        If the statement changes nothing, it waits for no standby: `confirm` rows that were there before.
        """

    async def confirm(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that only reads, and return when all rows it has read are durable, also on the standby."""

    async def read(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function on a connection that cannot write."""

    async def read_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`read` for a function that is a single statement."""

    def now(self) -> datetime | None:
        """The time to pass to statements: None where the database's own clock decides."""

    def log_bytes(self) -> int | None:
        """The size of an embedded database's write-ahead log; None where the server manages it."""

    async def close(self) -> None: ...
