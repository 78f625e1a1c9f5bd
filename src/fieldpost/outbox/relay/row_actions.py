"""Actions of a person on rows of an outbox: publish failed ones now, and discard rows that need not be sent."""

from collections.abc import Sequence
from dataclasses import dataclass

from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.outbox.relay.database import SqlStep, SqlTransaction
from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.outbox.relay.relay import open_database
from fieldpost.outbox.relay.sqlite import newest_sqlite
from fieldpost.outbox.relay.transactions import OutboxTransactions

IDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class RowAction:
    """The result: how many rows were changed, and the given ids that were not."""

    changed: int
    left: tuple[str, ...]


async def retry_rows(options: RelayOptions, ids: Sequence[str]) -> RowAction:
    """Make unpublished FAILED rows due now, all of them or those with these ids."""
    return await _act(options, ids, is_discard=False)


async def discard_rows(options: RelayOptions, ids: Sequence[str]) -> RowAction:
    """Delete rows that are not SENT and that no relay is publishing."""
    if not ids:
        raise InvalidInput("outbox.ids", "give the ids of the rows to discard", field="ids")
    return await _act(options, ids, is_discard=True)


async def _act(options: RelayOptions, ids: Sequence[str], *, is_discard: bool) -> RowAction:
    for event_id in ids:
        if not is_id(event_id):
            raise InvalidInput(
                "outbox.ids", f"{event_id[:64]!r} is not a UUID of 36 lower-case characters", field="ids"
            )
    if len(ids) > IDS_MAX:
        raise InvalidInput("outbox.ids", f"at most {IDS_MAX} ids at a time, got {len(ids)}", field="ids")
    database = open_database(options, newest_sqlite())
    transactions = OutboxTransactions(database.kind, "")
    given = list(dict.fromkeys(ids))

    def work() -> SqlTransaction[RowAction]:
        sql = transactions.statements
        if not given:
            result = yield SqlStep(sql.retry_all, {})
            return RowAction(result.count, ())
        rows = transactions.ids(given)
        found = yield SqlStep(sql.discardable if is_discard else sql.retryable, rows)
        chosen = {str(row[0]) for row in found.rows}
        result = yield SqlStep(sql.discard if is_discard else sql.retry, rows)
        return RowAction(result.count, tuple(one for one in given if one not in chosen))

    try:
        return await database.run(work)
    finally:
        await database.close()
