"""Topics: the registered kinds of events."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from fieldpost.central.store.events.subscriptions import lock_for_change
from fieldpost.central.store.schema.event_tables import topics
from fieldpost.core.events.topic import Topic


def all_topics(conn: Connection) -> list[Topic]:
    """All topics by name, archived ones included."""
    return [_topic(dict(row)) for row in conn.execute(select(topics).order_by(topics.c.topic)).mappings()]


def get(conn: Connection, name: str) -> Topic | None:
    row = conn.execute(select(topics).where(topics.c.topic == name)).mappings().first()
    return _topic(dict(row)) if row else None


def add(conn: Connection, topic: Topic, now: datetime) -> None:
    lock_for_change(conn)
    conn.execute(insert(topics).values(topic=topic.name, created_at=now, updated_at=now, **_values(topic)))


def change(conn: Connection, wanted: Topic, now: datetime) -> bool:
    """Write all but the name, if the topic is still at `wanted.version`."""
    lock_for_change(conn)
    changed = (
        update(topics)
        .where(topics.c.topic == wanted.name, topics.c.version == wanted.version)
        .values(updated_at=now, version=wanted.version + 1, **_values(wanted))
    )
    return conn.execute(changed).rowcount == 1


def remove(conn: Connection, name: str) -> bool:
    lock_for_change(conn)
    return conn.execute(delete(topics).where(topics.c.topic == name)).rowcount == 1


def _values(topic: Topic) -> dict[str, object]:
    return {
        "description": topic.description,
        "attributes": list(topic.attributes),
        "schema": topic.schema,
        "example": topic.example,
        "owners": list(topic.owners),
        "archived_at": topic.archived_at,
        "kanaal_id": topic.kanaal_id,
        "documentation_url": topic.documentation_url,
    }


def _names(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _topic(row: Mapping[str, object]) -> Topic:
    archived_at = row["archived_at"]
    return Topic(
        name=str(row["topic"]),
        description=str(row["description"]),
        attributes=_names(row["attributes"]),
        schema=None if row["schema"] is None else str(row["schema"]),
        example=None if row["example"] is None else str(row["example"]),
        owners=_names(row["owners"]),
        archived_at=archived_at if isinstance(archived_at, datetime) else None,
        kanaal_id=None if row["kanaal_id"] is None else str(row["kanaal_id"]),
        documentation_url=None if row["documentation_url"] is None else str(row["documentation_url"]),
        version=int(str(row["version"])),
    )
