"""The carrier of database writes: one statement in one transaction per attempt, with values only as parameters.

A statement may use `:call_id`, the same at every attempt of one write, to recognize a repetition: an attempt whose
commit was sent and not answered may have been carried out. An error is a refusal if a healthy database would refuse the
same write again. Every other error (lost, busy, full, read-only, misconfigured) is a problem of the database, and the
write waits.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fieldpost.clock import Clock
from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.secret import Scrubber, Secret
from fieldpost.core.sites.forwarding import CarrierAnswer, NotNow, Refused
from fieldpost.core.sites.message import Category, Message
from fieldpost.outbound.guard import AddressGuard, Resolve
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.resolver import SystemResolver
from fieldpost.site.carriers.payloads import DatabaseWrite, Scalar, decode_write
from fieldpost.site.carriers.postgresql import PostgresqlTarget
from fieldpost.site.carriers.sqlite import SqliteTarget
from fieldpost.site.config.database import Database
from fieldpost.site.config.database_url import PostgresqlUrl, SqliteUrl
from fieldpost.site.config.statements import CALL_ID, DefinedStatement


class TargetDatabase(Protocol):
    """One database of any kind."""

    async def write(
        self, statement: DefinedStatement, values: Sequence[Scalar], password: Secret | None
    ) -> CarrierAnswer:
        """Run the statement in its own transaction, within the definition's timeout."""

    async def close(self) -> None:
        """Close connections."""


class DatabaseCarrier:
    """Makes database writes. Keeps connections open for reuse; used from one event loop."""

    category = Category.DATABASE_WRITE

    def __init__(self, clock: Clock, options: OutboundOptions | None = None, *, resolve: Resolve | None = None) -> None:
        self._clock = clock
        options = options or OutboundOptions()
        resolver = resolve or SystemResolver(options.lookup_timeout_s, clock=clock)
        self._guard = AddressGuard("admin", options.allowed(), resolver)
        self._targets: dict[str, tuple[Database, TargetDatabase]] = {}

    async def attempt(self, message: Message, definition: Database | None) -> CarrierAnswer:
        """Make one attempt within the definition's timeout. External failures are answers, never exceptions."""
        if definition is None:
            return Refused(
                "database.undefined", f"site.toml no longer defines the database connection {message.target!r}"
            )
        try:
            write = decode_write(message.payload)
            statement = _statement(definition, write)
            values = _values(statement, write.parameters, message.message_id)
        except InvalidInput as error:
            return Refused(error.code, error.message)
        try:
            password = definition.password()
            answer = await (await self._target(definition)).write(statement, values, password)
        except ConfigError as error:
            # A problem of this site's configuration, not of the write: it waits until that is fixed.
            return NotNow(str(error))
        return _scrubbed(answer, Scrubber(() if password is None else (password,)))

    async def close(self) -> None:
        targets, self._targets = self._targets, {}
        for _, target in targets.values():
            await target.close()

    async def _target(self, definition: Database) -> TargetDatabase:
        known = self._targets.get(definition.name)
        if known is not None and known[0] == definition:
            return known[1]
        made: TargetDatabase
        match definition.place:
            case SqliteUrl(path=path):
                made = SqliteTarget(definition, path, self._clock)
            case PostgresqlUrl() as place:
                made = PostgresqlTarget(definition, place, self._guard, self._clock)
        self._targets[definition.name] = (definition, made)
        if known is not None:
            await known[1].close()
        return made


def _statement(definition: Database, write: DatabaseWrite) -> DefinedStatement:
    """The statement as defined now, which may have changed since the write was buffered."""
    found = definition.statement(write.statement)
    if found is None:
        raise InvalidInput(
            "statement.undefined", f"database.{definition.name} no longer allows the statement {write.statement[:64]!r}"
        )
    if found.given != frozenset(write.parameters):
        differing = ", ".join(sorted(found.given ^ set(write.parameters)))
        raise InvalidInput(
            "parameter.invalid", f"the statement's parameters have changed since the write was buffered: {differing}"
        )
    return found


def _values(statement: DefinedStatement, parameters: Mapping[str, Scalar], call_id: str) -> list[Scalar]:
    return [call_id if name == CALL_ID else parameters[name] for name in statement.parameters]


def _scrubbed(answer: CarrierAnswer, scrub: Scrubber) -> CarrierAnswer:
    match answer:
        case Refused(code=code, error=error):
            return Refused(code, scrub(error))
        case NotNow(error=error, wait_s=wait_s):
            return NotNow(scrub(error), wait_s)
        case _:
            return answer
