"""A PostgreSQL database that writes go to, by asyncpg, which is needed only where such a database is defined.

Parameters travel as text, and the server turns them into the type it needs, as it does with a literal in quotes: a time
may be given as '2026-11-15T08:14:00Z', a number as a number or a text. Nothing is prepared under a name and no setting
outlives the transaction, so that a pooler between us and the server does no harm.
"""

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fieldpost.clock import Clock
from fieldpost.core.errors import ConfigError
from fieldpost.core.secret import Secret
from fieldpost.core.sites.forwarding import CarrierAnswer, NotNow, Refused, Taken
from fieldpost.core.text import truncate
from fieldpost.outbound.guard import AddressGuard, Blocked
from fieldpost.site.carriers.payloads import Scalar
from fieldpost.site.config.database_url import PostgresqlUrl
from fieldpost.site.config.definitions import Database, no_driver
from fieldpost.site.config.statements import DefinedStatement

CONNECTIONS_MAX = 4
IDLE_S = 60.0
"""A connection that nobody has used for so long is closed: scripts come and go, and a server has few to give."""
STALE_S = 2.0
"""A kept connection that does not answer its first word within this has ended without telling us."""
ERROR_BYTES_MAX = 500

# What is the database's trouble and not the write's, by SQLSTATE or its first two characters; all else is refused.
NOT_NOW = frozenset(
    (
        "08",  # connection lost
        "25006",  # read-only: a standby, or one that is being moved
        "25P03",  # idle in the transaction for too long
        "25P04",  # transaction time-out
        "28",  # password or user not accepted
        "3D000",  # no such database
        "40000",  # rolled back
        "40001",  # serialization failure
        "40003",  # not known whether it was done
        "40P01",  # deadlock
        "53",  # disk full, out of memory, too many connections
        "55006",  # object in use
        "55P03",  # lock not available
        "57",  # shutting down, starting up, cancelled, statement time-out
        "58",  # input or output error of its machine
        "72",  # snapshot too old
        "F0",  # its configuration
        "XX",  # its own bug, or corrupt data
    )
)

_TEXT_TYPES = (
    "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "money", "oid", "text", "varchar", "bpchar", "name",
    "char", "json", "jsonb", "jsonpath", "xml", "uuid", "bytea", "bit", "varbit", "date", "time", "timetz", "timestamp",
    "timestamptz", "interval", "inet", "cidr", "macaddr", "macaddr8", "point", "line", "lseg", "box", "path", "polygon",
    "circle", "tsvector", "tsquery", "pg_lsn",
)  # fmt: skip


def judge(name: str, error: Exception, *, is_begun: bool = True, is_committing: bool = False) -> CarrierAnswer:
    """What an error of asyncpg or of the network means for the write, by how far that had come."""
    unsure = "; it may have been carried out all the same" if is_committing else ""
    said = truncate(str(error) or type(error).__name__, ERROR_BYTES_MAX)
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(sqlstate, str):
        text = f"{name}: {said} (SQLSTATE {sqlstate})"
        if sqlstate in NOT_NOW or sqlstate[:2] in NOT_NOW:
            return NotNow(text + (unsure if sqlstate.startswith(("08", "57P")) else ""))
        return Refused("database.refused", text)
    # asyncpg says this of a value that it cannot encode for the statement; all other errors of its own are of the line.
    if is_begun and isinstance(error, ValueError) and not isinstance(error, OSError):
        return Refused("database.refused", f"{name}: {said}")
    return NotNow(f"{name}: {said}{unsure}")


class PostgresqlTarget:
    """One database, with a few connections that are kept for a while."""

    def __init__(self, definition: Database, place: PostgresqlUrl, guard: AddressGuard, clock: Clock) -> None:
        self._definition = definition
        self._place = place
        self._guard = guard
        self._clock = clock
        self._asyncpg = _driver(definition)
        self._free: list[tuple[Any, float]] = []
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        self._sweeping: asyncio.TimerHandle | None = None

    async def write(
        self, statement: DefinedStatement, values: Sequence[Scalar], password: Secret | None
    ) -> CarrierAnswer:
        turn = _Turn()
        try:
            async with asyncio.timeout(self._definition.timeout_s), self._slots:
                try:
                    await self._write(turn, statement, values, password)
                except Exception:
                    await self._end(turn)
                    raise
                except BaseException:
                    # Cancelled, in the midst of who knows what.
                    turn.terminate()
                    raise
                self._give_back(turn.connection)
        except TimeoutError:
            unsure = "; it may have been carried out all the same" if turn.is_committing else ""
            return NotNow(f"{self._definition.name}: no answer within {self._definition.timeout_s:g} s{unsure}")
        except Blocked as blocked:
            return Refused("database.blocked", str(blocked))
        except ConfigError:
            raise
        except Exception as error:
            return judge(self._definition.name, error, is_begun=turn.is_begun, is_committing=turn.is_committing)
        return Taken()

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        free, self._free = self._free, []
        for connection, _ in free:
            with suppress(Exception):
                await connection.close(timeout=1)

    async def _write(
        self, turn: "_Turn", statement: DefinedStatement, values: Sequence[Scalar], password: Secret | None
    ) -> None:
        await self._begin(turn, password)
        turn.is_begun = True
        await turn.connection.execute(statement.sql, *values)
        turn.is_committing = True
        await turn.connection.execute("COMMIT")

    async def _begin(self, turn: "_Turn", password: Secret | None) -> None:
        """A connection within a transaction. One that ended while it was idle is replaced: that costs no attempt."""
        limit_ms = max(1, round(self._definition.timeout_s * 1000))
        begin = (
            f"BEGIN; SET LOCAL statement_timeout = {limit_ms}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {limit_ms}; SET LOCAL standard_conforming_strings = on"
        )
        while self._free:
            turn.connection, _ = self._free.pop()
            if turn.connection.is_closed():
                continue
            try:
                await turn.connection.execute(begin, timeout=min(STALE_S, self._definition.timeout_s / 2))
                return
            except (OSError, self._asyncpg.PostgresError, self._asyncpg.InterfaceError):
                # Nothing of the write has been said on it yet.
                turn.terminate()
        turn.connection = await self._connect(password)
        await turn.connection.execute(begin)

    async def _connect(self, password: Secret | None) -> Any:
        place = self._place
        hosts: list[str] = [place.host]
        if place.is_on_network:
            # What was judged is what is connected to; the name is kept for the certificate.
            hosts = [str(address) for address in await self._guard.addresses(place.host, place.port)]
        connection = await self._asyncpg.connect(
            host=hosts,
            port=[place.port] * len(hosts),
            user=place.user,
            # Never None: asyncpg would then look for one in the environment and in files.
            password=password.reveal() if password is not None else "",
            database=place.database,
            ssl=_tls(place.host, self._definition.ca_path) if self._definition.speaks_tls else False,
            statement_cache_size=0,
            server_settings={"application_name": "fieldpost"},
        )
        try:
            for kind in _TEXT_TYPES:
                await connection.set_type_codec(kind, schema="pg_catalog", encoder=_as_text, decoder=str, format="text")
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _end(self, turn: "_Turn") -> None:
        """After a failure: the connection is kept only if it can be brought back to where it was."""
        connection = turn.connection
        if connection is None or connection.is_closed():
            return
        if turn.is_committing or not connection.is_in_transaction():
            turn.terminate()
            return
        try:
            await connection.execute("ROLLBACK", timeout=STALE_S)
        except BaseException as error:
            turn.terminate()
            if not isinstance(error, Exception):
                raise
        else:
            self._give_back(connection)

    def _give_back(self, connection: Any) -> None:
        self._free.append((connection, self._clock.monotonic()))
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)

    def _sweep(self) -> None:
        """Let go of what nobody has used for a while."""
        oldest = self._clock.monotonic() - IDLE_S
        for connection, _ in (entry for entry in self._free if entry[1] <= oldest):
            connection.terminate()
        self._free = [entry for entry in self._free if entry[1] > oldest]
        self._sweeping = asyncio.get_running_loop().call_later(IDLE_S, self._sweep) if self._free else None


class _Turn:
    """How far one attempt has come."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.is_begun = False
        self.is_committing = False

    def terminate(self) -> None:
        if self.connection is not None:
            self.connection.terminate()


class _NamedContext(ssl.SSLContext):
    """Checks the certificate against the name in the definition, whatever address is connected to."""

    name: str

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return super().wrap_bio(*args, **(options | {"server_hostname": self.name}))


def _tls(name: str, ca_path: Path | None) -> ssl.SSLContext:
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.name = name
    try:
        if ca_path is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(str(ca_path))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("site.ca_file", f"the authority {ca_path} cannot be read: {error}") from None
    return context


def _as_text(value: Scalar) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value)
        case _:
            return str(value)


def _driver(definition: Database) -> Any:
    try:
        import asyncpg
    except ImportError:
        raise no_driver(definition) from None
    return asyncpg
