"""A PostgreSQL database as target of writes. Needs asyncpg, but only if such a database is defined.

Parameters are sent as text, and the server converts them like a quoted literal: a time may be '2026-11-15T08:14:00Z', a
number may be a number or text. There are no named prepared statements, and no setting outlives the transaction, so a
connection pooler in between is harmless.
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
from fieldpost.site.config.database import Database, no_driver
from fieldpost.site.config.database_url import PostgresqlUrl
from fieldpost.site.config.statements import DefinedStatement
from fieldpost.system_error import reason_of

CONNECTIONS_MAX = 4
IDLE_S = 60.0
"""Idle connections are closed after this time: scripts come and go, and a server has few connections."""
STALE_S = 2.0
"""An idle connection that does not answer BEGIN within this time is dead."""
ERROR_BYTES_MAX = 500

# SQLSTATEs, or their first two characters, that are problems of the database; all others are refusals of the write.
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


def judge(name: str, error: Exception, *, has_begun: bool = True, is_committing: bool = False) -> CarrierAnswer:
    """The answer for an error of asyncpg or the network, depending on the progress of the write."""
    unsure = "; the write may have been carried out" if is_committing else ""
    said = truncate(reason_of(error), ERROR_BYTES_MAX)
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(sqlstate, str):
        text = f"{name}: {said} (SQLSTATE {sqlstate})"
        if sqlstate in NOT_NOW or sqlstate[:2] in NOT_NOW:
            return NotNow(text + (unsure if sqlstate.startswith(("08", "57P")) else ""))
        return Refused("database.refused", text)
    # asyncpg raises ValueError for a value it cannot encode; its other errors concern the connection.
    if has_begun and isinstance(error, ValueError) and not isinstance(error, OSError):
        return Refused("database.refused", f"{name}: {said}")
    return NotNow(f"{name}: {said}{unsure}")


class PostgresqlTarget:
    """One database, with a small pool of connections."""

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
        progress = _Progress()
        try:
            async with asyncio.timeout(self._definition.timeout_s), self._slots:
                try:
                    await self._write(progress, statement, values, password)
                except Exception:
                    await self._clean_up(progress)
                    raise
                except BaseException:
                    # Cancelled: the state of the connection is unknown.
                    progress.terminate()
                    raise
                self._give_back(progress.connection)
        except TimeoutError:
            unsure = "; the write may have been carried out" if progress.is_committing else ""
            return NotNow(f"{self._definition.name}: no answer within {self._definition.timeout_s:g} s{unsure}")
        except Blocked as blocked:
            return Refused("database.blocked", str(blocked))
        except ConfigError:
            raise
        except Exception as error:
            return judge(
                self._definition.name, error, has_begun=progress.has_begun, is_committing=progress.is_committing
            )
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
        self, progress: "_Progress", statement: DefinedStatement, values: Sequence[Scalar], password: Secret | None
    ) -> None:
        await self._begin(progress, password)
        progress.has_begun = True
        await progress.connection.execute(statement.sql, *values)
        progress.is_committing = True
        await progress.connection.execute("COMMIT")

    async def _begin(self, progress: "_Progress", password: Secret | None) -> None:
        """Start a transaction. A connection that died while idle is replaced, which costs no attempt."""
        limit_ms = max(1, round(self._definition.timeout_s * 1000))
        begin = (
            f"BEGIN; SET LOCAL statement_timeout = {limit_ms}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {limit_ms}; SET LOCAL standard_conforming_strings = on"
        )
        while self._free:
            progress.connection, _ = self._free.pop()
            if progress.connection.is_closed():
                continue
            try:
                await progress.connection.execute(begin, timeout=min(STALE_S, self._definition.timeout_s / 2))
                return
            except (OSError, self._asyncpg.PostgresError, self._asyncpg.InterfaceError):
                # The write has not been sent on it yet.
                progress.terminate()
        progress.connection = await self._connect(password)
        await progress.connection.execute(begin)

    async def _connect(self, password: Secret | None) -> Any:
        place = self._place
        hosts: list[str] = [place.host]
        if place.is_on_network:
            # Connect to the checked addresses; the name is needed for the certificate.
            hosts = [str(address) for address in await self._guard.addresses(place.host, place.port)]
        connection = await self._asyncpg.connect(
            host=hosts,
            port=[place.port] * len(hosts),
            user=place.user,
            # Never None: asyncpg would then search the environment and files.
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

    async def _clean_up(self, progress: "_Progress") -> None:
        """Clean up after a failure: keep the connection only if the transaction can be rolled back."""
        connection = progress.connection
        if connection is None or connection.is_closed():
            return
        if progress.is_committing or not connection.is_in_transaction():
            progress.terminate()
            return
        try:
            await connection.execute("ROLLBACK", timeout=STALE_S)
        except BaseException as error:
            progress.terminate()
            if not isinstance(error, Exception):
                raise
        else:
            self._give_back(connection)

    def _give_back(self, connection: Any) -> None:
        self._free.append((connection, self._clock.monotonic()))
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)

    def _sweep(self) -> None:
        """Close idle connections."""
        oldest = self._clock.monotonic() - IDLE_S
        for connection, _ in (entry for entry in self._free if entry[1] <= oldest):
            connection.terminate()
        self._free = [entry for entry in self._free if entry[1] > oldest]
        self._sweeping = asyncio.get_running_loop().call_later(IDLE_S, self._sweep) if self._free else None


class _Progress:
    """The progress of one attempt."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.has_begun = False
        self.is_committing = False

    def terminate(self) -> None:
        if self.connection is not None:
            self.connection.terminate()


class _NamedContext(ssl.SSLContext):
    """Checks the certificate against the name in the definition, although we connect to an address."""

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
        raise ConfigError("site.ca_file", f"the CA file {ca_path} cannot be read: {error}") from None
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
