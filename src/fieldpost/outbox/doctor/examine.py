"""Running the checks: the application's database by the relay's own drivers, central by the relay's own token."""

from collections.abc import AsyncIterator
from types import ModuleType

from fieldpost.clock import Clock, SystemClock
from fieldpost.core.checks import Check, CheckVerdict, Diagnosis
from fieldpost.core.errors import FieldpostError
from fieldpost.core.times import to_text
from fieldpost.outbox.doctor.checks import (
    clock_check,
    relay_checks,
    row_checks,
    schema_checks,
    space_checks,
    version_check,
)
from fieldpost.outbox.doctor.facts import read_rows, read_schema
from fieldpost.outbox.relay.central import CentralUnreachable, RelayClient, RequestRefused, Unanswered
from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.outbox.relay.relay import open_database


async def examine_outbox(
    options: RelayOptions, clock: Clock | None = None, sqlite: ModuleType | None = None
) -> Diagnosis:
    """Run all checks. One that cannot run is a failing check; ConfigError only for a missing or wrong database URL."""
    clock = clock or SystemClock()
    found = [check async for check in _database_checks(options, clock, sqlite)]
    found += [check async for check in _central_checks(options, clock)]
    return Diagnosis(tuple(found))


async def _database_checks(options: RelayOptions, clock: Clock, sqlite: ModuleType | None) -> AsyncIterator[Check]:
    database = open_database(options, sqlite)
    try:
        schema = await database.run(lambda: read_schema(database.kind), is_read=True)
        yield version_check(schema)
        for check in schema_checks(schema):
            yield check
        if not schema.has_outbox:
            return
        before = clock.now()
        rows = await database.run(lambda: read_rows(schema), is_read=True)
        for check in (
            clock_check(before, clock.now(), rows.now, "the database's clock"),
            *row_checks(rows, options.sent_days),
            *relay_checks(rows, is_recorded=options.tasks),
            *space_checks(schema.database, rows.space),
        ):
            yield check
    except FieldpostError as error:
        fix = error.hint or "check relay.database, and that the database runs"
        yield Check("database", CheckVerdict.FAILING, f"{error.message}: {fix}")
    finally:
        await database.close()


async def _central_checks(options: RelayOptions, clock: Clock) -> AsyncIterator[Check]:
    if not options.url:
        yield Check("central", CheckVerdict.FAILING, "relay.url is not set: set it to the address of central")
        return
    client = RelayClient(options)
    try:
        before = clock.now()
        answer = await client.results_since(to_text(before))
        yield Check("central", CheckVerdict.OK, f"{options.url} answers and accepts the token")
        yield clock_check(before, clock.now(), answer.as_of, "central's clock")
    except CentralUnreachable as error:
        if error.code == "relay.denied":
            advice = "check relay.token_file; fieldpost tokens add NAME --role publisher creates a token"
            yield Check("token", CheckVerdict.FAILING, f"{error.message}: {advice}")
        else:
            yield Check("central", CheckVerdict.FAILING, f"{error.message}: check relay.url and the network")
    except (RequestRefused, Unanswered) as error:
        yield Check("central", CheckVerdict.FAILING, f"{error}: check that relay.url is the address of central")
    finally:
        await client.close()
