"""The time by which rows are judged, for those who write one themselves."""

from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.statement import Statement

_moment = Statement("select {now} as at", result={"at": Moment})


def moment(conn: Connection, now: datetime | None) -> datetime:
    """The database's own time on PostgreSQL unless a time is given, the given one on SQLite (`Store.now()`)."""
    at: datetime = _moment.run(conn, now=now)[0].at
    return at
