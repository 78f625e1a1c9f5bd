"""Routes, and the cooldowns of their values. A change takes the same lock as a change of subscriptions."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Integer, Row, Text, insert, select, update

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.purging import DatedTable
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.events.subscriptions import filter_from_rows, filter_to_rows, lock_for_change
from fieldpost.central.store.schema.list_tables import list_targets, lists
from fieldpost.central.store.schema.route_tables import routes
from fieldpost.core.events.route import Cooldown, EventRoute
from fieldpost.core.lists import LISTS_TYPE, UNRESOLVED_TYPE

COOLDOWNS = DatedTable("cooldowns", "until")

_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_begin_cooldowns = Statement(
    """
    insert into cooldowns (route_id, value, until, suppressed)
    select u.route_id, u.value, :until, 0 from {rows} where true order by u.route_id, u.value
    on conflict (route_id, value) do nothing
    """,
    rows={"route_id": "id", "value": "text"},
)
_COOLDOWN = {"route_id": Id, "value": Text, "until": Moment, "suppressed": Integer, "last_suppressed_at": Moment}
_SHOWN = ", ".join(f"c.{name}" for name in _COOLDOWN)
_read_cooldowns = Statement(
    f"""
    select {_SHOWN} from cooldowns c join {{rows}} on c.route_id = u.route_id and c.value = u.value
    order by c.route_id, c.value
    """,
    rows={"route_id": "id", "value": "text"},
    result=_COOLDOWN,
)
_lock_cooldowns = Statement(
    f"""
    select {_SHOWN} from cooldowns c join {{rows}} on c.route_id = u.route_id and c.value = u.value
    order by c.route_id, c.value for update of c
    """,
    sqlite="select 1",
    rows={"route_id": "id", "value": "text"},
    result=_COOLDOWN,
)
_write_cooldowns = Statement(
    """
    update cooldowns set until = u.until, suppressed = u.suppressed, last_suppressed_at = u.last_suppressed_at
    from {rows} where cooldowns.route_id = u.route_id and cooldowns.value = u.value
    """,
    rows={
        "route_id": "id",
        "value": "text",
        "until": "moment",
        "suppressed": "int",
        "last_suppressed_at": "moment",
    },
)
_running_cooldowns = Statement(
    f"""
    select {_SHOWN} from cooldowns c where c.route_id = :route_id and (c.suppressed > 0 or c.until > :now_at)
    order by c.suppressed desc, c.value limit :limit
    """,
    result=_COOLDOWN,
)
_suppressed = Statement(
    "select route_id, sum(suppressed) as suppressed from cooldowns group by route_id",
    result={"route_id": Id, "suppressed": Integer},
)


def active(conn: Connection) -> list[EventRoute]:
    """The routes that are not removed, by name."""
    found = conn.execute(select(routes).where(routes.c.removed_at.is_(None)).order_by(routes.c.name)).mappings()
    return [_route(dict(row)) for row in found]


def these(conn: Connection, ids: Collection[str]) -> dict[str, EventRoute]:
    """Those of these routes that exist, removed ones too, by id."""
    found = conn.execute(select(routes).where(routes.c.route_id.in_(ids))).mappings() if ids else ()
    return {one.route_id: one for one in (_route(dict(row)) for row in found)}


def get(conn: Connection, route_id: str) -> EventRoute | None:
    return these(conn, [route_id]).get(route_id)


def named(conn: Connection, name: str) -> EventRoute | None:
    """The route of this name, unless it is removed."""
    query = select(routes).where(routes.c.name == name, routes.c.removed_at.is_(None))
    row = conn.execute(query).mappings().first()
    return _route(dict(row)) if row else None


def list_types(conn: Connection, names: Collection[str]) -> dict[str, str]:
    """The types of those of these lists that exist."""
    if not names:
        return {}
    found = conn.execute(select(lists.c.list_name, lists.c.type).where(lists.c.list_name.in_(names)))
    return {row.list_name: row.type for row in found}


def members_of(conn: Connection, names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The lists that each of these lists of lists names."""
    if not names:
        return {}
    found = conn.execute(
        select(list_targets.c.list_name, list_targets.c.address)
        .join(lists, lists.c.list_name == list_targets.c.list_name)
        .where(lists.c.list_name.in_(names), lists.c.type == LISTS_TYPE)
        .order_by(list_targets.c.list_name, list_targets.c.address)
    )
    members: dict[str, tuple[str, ...]] = {}
    for row in found:
        members[row.list_name] = (*members.get(row.list_name, ()), row.address)
    return members


def types_needed(conn: Connection, names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The types that templates are needed for, by list: its own, or those of the lists that it names."""
    members = members_of(conn, names)
    types = list_types(conn, {*names, *(one for some in members.values() for one in some)})
    return {
        name: tuple(sorted({types.get(one, UNRESOLVED_TYPE) for one in members.get(name, (name,))})) for name in names
    }


def add(conn: Connection, route: EventRoute, now: datetime) -> None:
    lock_for_change(conn)
    conn.execute(insert(routes).values(route_id=route.route_id, created_at=now, updated_at=now, **_values(route)))


def change(conn: Connection, wanted: EventRoute, now: datetime) -> bool:
    """Write all but the id, if the route is still at `wanted.version` and not removed."""
    lock_for_change(conn)
    c = routes.c
    changed = (
        update(routes)
        .where(c.route_id == wanted.route_id, c.version == wanted.version, c.removed_at.is_(None))
        .values(updated_at=now, version=wanted.version + 1, **_values(wanted))
    )
    return conn.execute(changed).rowcount == 1


def lock_cooldowns(conn: Connection, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Cooldown]:
    """The cooldowns of these (route id, value), locked in one order until the transaction ends."""
    rows = sorted(keys)
    _begin_cooldowns.run(conn, rows, until=_EVER)
    read = _lock_cooldowns if conn.dialect.name == "postgresql" else _read_cooldowns
    return {(row.route_id, row.value): _cooldown(row) for row in read.run(conn, rows)}


def write_cooldowns(conn: Connection, states: Sequence[Cooldown]) -> None:
    rows = [(s.route_id, s.value, s.until, s.suppressed, s.last_suppressed_at) for s in states]
    if rows:
        _write_cooldowns.run(conn, rows)


def running_cooldowns(conn: Connection, route_id: str, now: datetime, limit: int) -> list[Cooldown]:
    """Values whose cooldown runs or that had events suppressed, most suppressed first."""
    return [_cooldown(row) for row in _running_cooldowns.run(conn, route_id=route_id, now_at=now, limit=limit)]


def suppressed_counts(conn: Connection) -> dict[str, int]:
    """How many events each route has suppressed in the cooldowns that are still stored."""
    return {row.route_id: int(row.suppressed) for row in _suppressed.run(conn)}


def _cooldown(row: Row[Any]) -> Cooldown:
    return Cooldown(row.route_id, row.value, row.until, row.suppressed, row.last_suppressed_at)


def _values(route: EventRoute) -> dict[str, object]:
    return {
        "name": route.name,
        "filter": filter_to_rows(route.filter),
        "list_name": route.list_name,
        "to_member": route.to,
        "cooldown_s": route.cooldown_s,
        "cooldown_by": route.cooldown_by,
        "removed_at": route.removed_at,
    }


def _route(row: Mapping[str, object]) -> EventRoute:
    cooldown, removed_at = row["cooldown_s"], row["removed_at"]
    return EventRoute(
        route_id=str(row["route_id"]),
        name=str(row["name"]),
        filter=filter_from_rows(row["filter"]),
        list_name=str(row["list_name"]),
        to=None if row["to_member"] is None else str(row["to_member"]),
        cooldown_s=float(cooldown) if isinstance(cooldown, float | int) else None,
        cooldown_by=None if row["cooldown_by"] is None else str(row["cooldown_by"]),
        removed_at=removed_at if isinstance(removed_at, datetime) else None,
        version=int(str(row["version"])),
    )
