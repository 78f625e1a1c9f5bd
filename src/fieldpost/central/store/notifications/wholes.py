"""Reading wholes: submissions to lists of lists, with their parts."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.notifications.targets import targets_of
from fieldpost.central.store.schema import rows as to_core
from fieldpost.core.notification import Notification, Status
from fieldpost.core.wholes import Whole

_get = Statement(
    """
    select whole_id, list_name, source_site_id, created_at from wholes
    where whole_id = :whole_id and (cast(:site as text) is null or source_site_id = :site)
    """,
    result={"whole_id": Id, "list_name": Text, "source_site_id": Text, "created_at": Moment},
)
_parts = Statement(
    f"select {to_core.NOTIFICATION_COLUMNS} from notifications where whole_id = :whole_id order by list_name",
    result=to_core.NOTIFICATION_TYPES,
)
_purged = Statement("select status from tombstones where whole_id = :whole_id", result={"status": Text})
_add_tombstones = Statement(
    """
    insert into tombstones (notification_id, source_site_id, digest, status, terminal_at, purged_at)
    select w.whole_id, w.source_site_id, w.digest,
        (select max(t.status) from tombstones t where t.whole_id = w.whole_id),
        (select max(t.terminal_at) from tombstones t where t.whole_id = w.whole_id), {now}
    from wholes w where w.whole_id {any:ids}
        and exists (select 1 from tombstones t where t.whole_id = w.whole_id)
        and not exists (select 1 from notifications n where n.whole_id = w.whole_id)
    on conflict (notification_id) do nothing
    """,
    lists={"ids": "id"},
)
_delete = Statement(
    """
    delete from wholes where whole_id {any:ids}
        and not exists (select 1 from notifications n where n.whole_id = wholes.whole_id)
    """,
    lists={"ids": "id"},
)


def get(conn: Connection, whole_id: str, site: str | None = None) -> tuple[Whole, list[Notification]] | None:
    """The whole and its parts with their targets, by list; None if it is of another site than the given one."""
    found = _get.run(conn, whole_id=whole_id, site=site)
    if not found:
        return None
    rows = _parts.run(conn, whole_id=whole_id)
    if not rows:
        return None
    targets = targets_of(conn, [row.notification_id for row in rows])
    parts = [to_core.notification(row, targets.get(row.notification_id, ())) for row in rows]
    purged = tuple(Status(row.status) for row in _purged.run(conn, whole_id=whole_id))
    one = found[0]
    return Whole(one.whole_id, one.list_name, one.source_site_id, one.created_at, purged), parts


def purge_empty(conn: Connection, ids: Collection[str], now: datetime) -> None:
    """Delete those of these wholes whose last part is purged; leave tombstones.

    The status of the tombstone is the fold of the parts: in this order of names the worst comes last.
    """
    if ids:
        _add_tombstones.run(conn, ids=list(ids), now=now)
        _delete.run(conn, ids=list(ids))
