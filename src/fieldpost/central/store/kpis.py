"""Numbers computed from the tables."""

from sqlalchemy import Connection, func, select

from fieldpost.central.store.tables import notifications
from fieldpost.core.notification import Status


def count_by_status(conn: Connection) -> dict[Status, int]:
    """How many notifications stand in each status, those without any included."""
    counted = select(notifications.c.status, func.count()).group_by(notifications.c.status)
    found = {Status(status): int(count) for status, count in conn.execute(counted)}
    return {status: found.get(status, 0) for status in Status}
