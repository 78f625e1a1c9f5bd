"""The reference of `table`: the same reads and writes, hand-written for one plain connection."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import asyncpg

from bench.grown import GrownStore
from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.sqlite_store import sqlite_module
from fieldpost.core.kpi import Thresholds
from fieldpost.core.times import from_microseconds, to_microseconds

PageKey = tuple[datetime, str]
PAGE = 50

_KPIS = (
    """
    select source_site_id, count(*), count(case when created_at < {stuck} then 1 end), min(created_at)
    from notifications where status <> 'delivered' and status in ('pending', 'retrying') group by source_site_id
    """,
    """
    select source_site_id, count(*) from notifications
    where due_at is not null and held_by is null and due_at < {overdue}
        and (lease_until is null or lease_until < {overdue})
    group by source_site_id
    """,
    """
    select source_site_id, count(*) from notifications where status <> 'delivered' and status = 'parked'
    group by source_site_id
    """,
    """
    select source_site_id, count(*) from notifications where terminal_at > {window} and status = 'delivered'
    group by source_site_id
    """,
)
_STATUSES = ("pending", "retrying", "parked", "discarded")
_COUNTS = (
    "select count(*) from (select 1 from notifications where terminal_at is not null and status = 'delivered' {limit})"
    " as c",
    *(
        f"select count(*) from (select 1 from notifications where status <> 'delivered' and status = '{status}'"
        " {limit}) as c"
        for status in _STATUSES
    ),
)
_LINE = """
    n.notification_id, type, list_name, subject, status, retry_count, last_error, source_site_id, n.created_at,
    last_attempt_at, next_attempt_at, delivered_at, held_by, cycle, version,
    (select count(*) from attempts a where a.notification_id = n.notification_id) as attempt_count
"""
_ORDER = f"order by n.created_at desc, n.notification_id desc limit {PAGE}"
_PAGE = f"select {_LINE} from notifications n {{where}} {_ORDER}"
_OF_TERM = f"""
    select {_LINE} from (
        select notification_id from by_hand where term = '{{term}}'
        order by created_at desc, notification_id desc limit {PAGE}
    ) as h join notifications n on n.notification_id = h.notification_id
"""
_OF_SUBSCRIPTION = f"""
    select {_LINE} from notifications n where delivery_key = '{{key}}' and event_id is not null {_ORDER}
"""
_OF_EVENT = f"""
    select {_LINE} from (
        select * from notifications where event_id = '{{event_id}}' and event_id is not null limit 1000
    ) as n {_ORDER}
"""
_EVENTS = f"""
    select event_id, topic, source, action, resource, attributes, occurred_at, correlation_id, created_at, match_count
    from events order by created_at desc, event_id desc limit {PAGE}
"""
_OF_LIVE = " union all ".join(
    f"select * from (select {_LINE} from notifications n where status <> 'delivered' and status = '{status}'"
    f" and created_at < {{before}} {_ORDER}) as {status}_rows"
    for status in ("pending", "retrying")
)
_PARKED_GROUPS = """
    select last_error, count(*), min(terminal_at), max(terminal_at) from (
        select last_error, terminal_at from notifications where status <> 'delivered' and status = 'parked'
        order by created_at desc limit 20000
    ) as newest group by last_error
"""
_CLAIMED = "notification_id, claim_token, list_name, subject, body, cycle, source_site_id, source_script"


class Hand(Protocol):
    async def kpis(self, by: Thresholds) -> object:
        """All KPIs of all sites."""

    async def counts(self, most: int) -> object:
        """Number of rows per status, up to a limit."""

    async def page(self, before: PageKey | None) -> object:
        """A page of the list with the number of attempts of each row."""

    async def before(self, until: datetime) -> object:
        """The same for rows that arrived before a time."""

    async def of_status(self, status: str) -> object: ...

    async def of_term(self, term: str) -> object:
        """The same for rows with a term (site, list or word), by a dedicated index."""

    async def of_subscription(self, subscription_id: str) -> object: ...

    async def of_event(self, event_id: str) -> object:
        """The same for the notifications of an event."""

    async def events(self) -> object:
        """A page of events."""

    async def stuck(self, before: datetime) -> object: ...

    async def parked_groups(self) -> object: ...

    async def middle(self) -> PageKey:
        """A position in the middle of the list."""

    async def claim(self, count: int) -> None:
        """Claim rows: lease, token, attempt and targets."""

    async def purge(self, cutoff: datetime, count: int) -> int:
        """Delete one batch of the oldest rows and write their tombstones."""

    async def close(self) -> None: ...


class _Reads:
    """Queries that are the same on both databases."""

    _store: GrownStore

    async def kpis(self, by: Thresholds) -> object:
        now = self._store.now
        moments = {
            "stuck": self._moment(now - by.stuck_after),
            "overdue": self._moment(now - by.overdue_after),
            "window": self._moment(now - by.delivered_window),
        }
        return [await self._fetch(statement.format(**moments)) for statement in _KPIS]

    async def counts(self, most: int) -> object:
        return [await self._fetch(statement.format(limit=f"limit {most}")) for statement in _COUNTS]

    async def page(self, before: PageKey | None) -> object:
        if before is None:
            return await self._fetch(_PAGE.format(where=""))
        where = f"where (n.created_at, n.notification_id) < ({self._moment(before[0])}, '{before[1]}')"
        return await self._fetch(_PAGE.format(where=where))

    async def before(self, until: datetime) -> object:
        return await self._fetch(_PAGE.format(where=f"where n.created_at < {self._moment(until)}"))

    async def of_status(self, status: str) -> object:
        index = "" if status == "delivered" else "status <> 'delivered' and "
        return await self._fetch(_PAGE.format(where=f"where {index}status = '{status}'"))

    async def of_term(self, term: str) -> object:
        return await self._fetch(_OF_TERM.format(term=term))

    async def of_subscription(self, subscription_id: str) -> object:
        return await self._fetch(_OF_SUBSCRIPTION.format(key=f"subscription:{subscription_id}"))

    async def of_event(self, event_id: str) -> object:
        return await self._fetch(_OF_EVENT.format(event_id=event_id))

    async def events(self) -> object:
        return await self._fetch(_EVENTS)

    async def stuck(self, before: datetime) -> object:
        return await self._fetch(_OF_LIVE.format(before=self._moment(before)))

    async def parked_groups(self) -> object:
        return await self._fetch(_PARKED_GROUPS)

    async def middle(self) -> PageKey:
        at = self._moment(self._store.now - timedelta(days=200))
        [row] = await self._fetch(
            f"select created_at, notification_id from notifications where created_at > {at} order by 1, 2 limit 1"
        )
        return from_microseconds(row[0]) if isinstance(row[0], int) else row[0], str(row[1])

    async def _fetch(self, statement: str) -> Sequence[Any]:
        raise NotImplementedError

    def _moment(self, moment: datetime) -> str:
        raise NotImplementedError


class HandPostgres(_Reads):
    def __init__(self, connection: asyncpg.Connection, store: GrownStore) -> None:
        self._connection = connection
        self._store = store

    @classmethod
    async def connect(cls, store: GrownStore) -> "HandPostgres":
        return cls(await asyncpg.connect(store.url, server_settings={"jit": "off"}), store)

    async def claim(self, count: int) -> None:
        claimed = await self._connection.fetch(
            f"""
            with due as materialized (
                select notification_id from notifications
                where due_at is not null and held_by is null and status = 'pending' and due_at <= $2
                    and (lease_until is null or lease_until <= $2)
                limit $1 for update skip locked
            ),
            claimed as (
                update notifications set claim_owner = 'hand', claim_token = claim_token + 1,
                    lease_until = $2 + interval '90 s'
                where notification_id = any(array(select notification_id from due)) returning {_CLAIMED}
            ),
            started as (
                insert into attempts (notification_id, claim_token, cycle, node_id, started_at)
                select notification_id, claim_token, cycle, 'hand', $2 from claimed
            ),
            fixed as (
                insert into targets (notification_id, address, status)
                select notification_id, address, 'due' from claimed join list_targets using (list_name)
            )
            select * from claimed
            """,
            count,
            self._store.now,
        )
        assert len(claimed) == count

    async def purge(self, cutoff: datetime, count: int) -> int:
        done = await self._connection.execute(
            """
            with doomed as materialized (
                select notification_id from notifications where terminal_at < $1
                order by terminal_at limit $2 for update skip locked
            ),
            gone as (
                delete from notifications where notification_id = any(array(select notification_id from doomed))
                returning notification_id, source_site_id, digest, status, terminal_at
            )
            insert into tombstones (notification_id, source_site_id, digest, status, terminal_at, purged_at)
            select *, $3::timestamptz from gone
            """,
            cutoff,
            count,
            self._store.now,
        )
        return int(done.split()[-1])

    async def close(self) -> None:
        await self._connection.close()

    async def _fetch(self, statement: str) -> Sequence[Any]:
        return await self._connection.fetch(statement)

    def _moment(self, moment: datetime) -> str:
        return f"timestamptz '{moment.isoformat()}'"


class HandSqlite(_Reads):
    def __init__(self, store: GrownStore) -> None:
        self._store = store
        self._now = to_microseconds(store.now)
        self._connection = sqlite_module.connect(parse_url(store.url).database, isolation_level=None)
        for pragma in ("synchronous = FULL", "foreign_keys = ON", "busy_timeout = 30000", "cache_size = -65536"):
            self._connection.execute(f"pragma {pragma}")

    async def claim(self, count: int) -> None:
        execute = self._connection.execute
        execute("begin immediate")
        claimed = execute(
            f"""
            update notifications set claim_owner = 'hand', claim_token = claim_token + 1, lease_until = ?1 + 90000000
            where notification_id in (
                select notification_id from notifications
                where due_at is not null and held_by is null and status = 'pending' and due_at <= ?1
                    and (lease_until is null or lease_until <= ?1)
                limit ?2
            )
            returning {_CLAIMED}
            """,
            (self._now, count),
        ).fetchall()
        self._connection.executemany(
            "insert into attempts (notification_id, claim_token, cycle, node_id, started_at)"
            " values (?, ?, ?, 'hand', ?)",
            [(row[0], row[1], row[5], self._now) for row in claimed],
        )
        self._connection.executemany(
            "insert into targets (notification_id, address, status)"
            " select ?, address, 'due' from list_targets where list_name = ?",
            [(row[0], row[2]) for row in claimed],
        )
        execute("commit")
        assert len(claimed) == count

    async def purge(self, cutoff: datetime, count: int) -> int:
        execute = self._connection.execute
        doomed = "select notification_id from notifications where terminal_at < ? order by terminal_at limit ?"
        given = (to_microseconds(cutoff), count)
        execute("begin immediate")
        execute(
            "insert into tombstones select notification_id, source_site_id, digest, status, terminal_at, ?"
            f" from notifications where notification_id in ({doomed})",
            (self._now, *given),
        )
        deleted = execute(f"delete from notifications where notification_id in ({doomed})", given).rowcount
        execute("commit")
        return int(deleted)

    async def close(self) -> None:
        self._connection.close()

    async def _fetch(self, statement: str) -> Sequence[Any]:
        return self._connection.execute(statement).fetchall()

    def _moment(self, moment: datetime) -> str:
        return str(to_microseconds(moment))
