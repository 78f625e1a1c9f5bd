"""Reading the outbox in the tests of an application.

event_id = place_order(session, 17)
assert [event.event_type for event in outbox_events(session)] == ["ORDER_PLACED"]
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fieldpost.outbox.connections import async_driver_of, driver_of
from fieldpost.outbox.schema_queries import events_query


@dataclass(frozen=True, slots=True)
class AddedEvent:
    """An event in the outbox."""

    event_id: str
    event_type: str
    payload: dict[str, Any]
    status: str
    action: str | None
    resource: str | None
    attributes: dict[str, str]
    correlation_id: str | None
    order_key: str | None


def outbox_events(connection: Any) -> list[AddedEvent]:
    """The events that this connection sees, in the order in which they were added; also those not yet committed.

    Takes the same connections as `Outbox.add`.
    """
    driver = driver_of(connection)
    connection = driver.resolve(connection)
    return _events(driver.query(connection, events_query(driver.dialect(connection).database)))


async def outbox_events_async(connection: Any) -> list[AddedEvent]:
    """The same as `outbox_events`, for asynchronous connections."""
    driver = async_driver_of(connection)
    connection = await driver.resolve(connection)
    return _events(await driver.query(connection, events_query(driver.dialect(connection).database)))


def _events(rows: Sequence[tuple[Any, ...]]) -> list[AddedEvent]:
    names = [field.name for field in fields(AddedEvent)]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return [
        AddedEvent(**one | {"payload": json.loads(one["payload"]), "attributes": json.loads(one["attributes"] or "{}")})
        for one in found
    ]
