"""Who gets the row: operators who retry and discard, the purge and the dispatchers, all at once, on the same rows."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, text

from fieldpost.central.operate.notifications import NotificationActions
from fieldpost.central.store.notifications import records
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.purge import Purge
from fieldpost.core.actor import Actor, Role
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.errors import Conflict, NotFound
from fieldpost.core.notification import Notification, Status
from fieldpost.testing import ManualClock
from support.centre import Centre

DAY_S = 86_400.0
AT_A_TIME = 50


@dataclass
class Result:
    """What each operator heard, by row."""

    won: dict[str, list[str]] = field(default_factory=dict)
    """The acts that were done: `retry` or `discard`."""
    refused: Counter[str] = field(default_factory=Counter)
    """The codes of those that were not."""


async def park_many(centre: Centre, count: int) -> list[Notification]:
    """So many parked rows, a year and a day old, in no order; whatever is tried again parks again."""
    assert isinstance(centre.clock, ManualClock)
    centre.adapter.always["ops"] = PermanentFailure("550 unknown")
    sent = await centre.send_many(count)
    await centre.deliver(slots=count, slots_per_key=count)
    centre.clock.advance(366 * DAY_S)
    found = await centre.store.read(records.without_bodies, sent)
    return [found[i] for i in sorted(sent)]


async def contend(centres: Sequence[Centre], rows: Sequence[Notification]) -> Result:
    """Each row is retried and discarded as it was seen, through every store at once."""
    result = Result({n.notification_id: [] for n in rows})

    async def act(operate: NotificationActions, verb: str, n: Notification, actor: str) -> None:
        try:
            await getattr(operate, verb)(Actor(actor, Role.OPERATOR), n.notification_id, n.version)
        except (Conflict, NotFound) as error:
            result.refused[error.code] += 1
        else:
            result.won[n.notification_id].append(verb)

    operates = [NotificationActions(centre.store, centre.clock) for centre in centres]
    for at in range(0, len(rows), AT_A_TIME):
        some = rows[at : at + AT_A_TIME]
        await asyncio.gather(
            *(
                act(operate, verb, n, f"{verb}er")
                # Who comes first changes from row to row.
                for number, n in enumerate(some)
                for operate in operates
                for verb in (("retry", "discard") if number % 2 else ("discard", "retry"))
            )
        )
    return result


async def purge_of(centre: Centre, node_id: str = "node-1", **options: float) -> Purge:
    made = UpkeepOptions(lease_s=10 * DAY_S, audit_retention_days=1000, **options)  # type: ignore[arg-type]
    leader = Leader(centre.store, node_id, centre.clock, made)
    assert await leader.campaign()
    return Purge(centre.store, centre.clock, leader, made)


async def ids(centre: Centre, table: str) -> set[str]:
    def look(conn: Connection) -> set[str]:
        return {str(row[0]) for row in conn.execute(text(f"select notification_id from {table}"))}

    return await centre.store.read(look)


async def stories(centre: Centre) -> dict[str, list[tuple[str, str, str]]]:
    """What the audit tells of each row: kind, status and actor, in order."""

    def look(conn: Connection) -> dict[str, list[tuple[str, str, str]]]:
        found: dict[str, list[tuple[str, str, str]]] = {}
        query = "select correlation_id, kind, status, actor from audit order by occurred_at, event_id"
        for correlation_id, kind, status, actor in conn.execute(text(query)):
            found.setdefault(str(correlation_id), []).append((kind, status, actor))
        return found

    return await centre.store.read(look)


async def standings(centre: Centre) -> dict[str, tuple[str, int, int]]:
    """How each row stands: its status, its cycle, and how many attempts it has seen."""

    def look(conn: Connection) -> dict[str, tuple[str, int, int]]:
        query = """
            select n.notification_id, n.status, n.cycle, count(a.claim_token) as attempts
            from notifications n left join attempts a on a.notification_id = n.notification_id
            group by n.notification_id, n.status, n.cycle
        """
        return {str(row[0]): (row[1], row[2], row[3]) for row in conn.execute(text(query))}

    return await centre.store.read(look)


async def check(centre: Centre, result: Result, purged: set[str]) -> None:
    """One winner for each row, the audit tells of it and of nothing else, and the row is as it left it."""
    told, left = await stories(centre), await standings(centre)
    for notification_id, won in result.won.items():
        acts = [entry for entry in told[notification_id] if entry[0] == "operator_action"]
        if notification_id in purged:
            assert (won, acts) == ([], []), notification_id
            continue
        assert len(won) == 1, notification_id
        if won == ["retry"]:
            assert acts == [("operator_action", "submitted", "retryer")]
            assert left[notification_id] == (Status.PARKED, 2, 2), "it was tried again, and failed again"
        else:
            assert acts == [("operator_action", "discarded", "discarder")]
            assert left[notification_id] == (Status.DISCARDED, 1, 1)
