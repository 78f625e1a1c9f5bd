"""Templates: the current version of each, and their history. A change takes the lock of publishing."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from fieldpost.central.store.events.subscriptions import lock_for_change
from fieldpost.central.store.schema.route_tables import template_versions, templates
from fieldpost.core.events.template import Template

_IS_CURRENT = (
    (templates.c.topic == template_versions.c.topic)
    & (templates.c.type == template_versions.c.type)
    & (templates.c.version == template_versions.c.version)
)


def current(conn: Connection) -> dict[tuple[str, str], Template]:
    """The current templates by topic and type."""
    query = select(template_versions).join(templates, _IS_CURRENT).order_by(templates.c.topic, templates.c.type)
    found = [_template(dict(row), is_current=True) for row in conn.execute(query).mappings()]
    return {(one.topic, one.type): one for one in found}


def get(conn: Connection, topic: str, type_: str) -> Template | None:
    """The current version."""
    query = select(template_versions).join(templates, _IS_CURRENT)
    query = query.where(templates.c.topic == topic, templates.c.type == type_)
    row = conn.execute(query).mappings().first()
    return _template(dict(row), is_current=True) if row else None


def versions(conn: Connection, topic: str, type_: str, limit: int) -> list[Template]:
    """Versions, newest first."""
    t = template_versions.c
    version = conn.execute(
        select(templates.c.version).where(templates.c.topic == topic, templates.c.type == type_)
    ).scalar()
    query = select(template_versions).where(t.topic == topic, t.type == type_).order_by(t.version.desc()).limit(limit)
    rows = conn.execute(query).mappings()
    return [_template(dict(row), is_current=row["version"] == version) for row in rows]


def version(conn: Connection, topic: str, type_: str, number: int) -> Template | None:
    """One version, current or not."""
    t = template_versions.c
    query = select(template_versions).where(t.topic == topic, t.type == type_, t.version == number)
    row = conn.execute(query).mappings().first()
    return _template(dict(row), is_current=False) if row else None


def add_version(conn: Connection, template: Template, seen: int | None) -> bool:
    """Add the next version and make it the current one, if the current one is still `seen` (None for no template)."""
    lock_for_change(conn)
    t = templates.c
    if seen is None:
        if get(conn, template.topic, template.type) is not None:
            return False
        conn.execute(insert(templates).values(topic=template.topic, type=template.type, version=template.version))
    else:
        of_seen = (t.topic == template.topic, t.type == template.type, t.version == seen)
        if conn.execute(update(templates).where(*of_seen).values(version=template.version)).rowcount != 1:
            return False
    conn.execute(
        insert(template_versions).values(
            topic=template.topic,
            type=template.type,
            version=template.version,
            subject=template.subject,
            body=template.body,
            severity=template.severity,
            incident=template.incident,
            is_cleared=template.is_cleared,
            created_at=template.created_at,
            created_by=template.created_by,
        )
    )
    return True


def latest_number(conn: Connection, topic: str, type_: str) -> int:
    """The highest version number so far, 0 without any: numbers are not used twice."""
    found = versions(conn, topic, type_, 1)
    return found[0].version if found else 0


def remove(conn: Connection, topic: str, type_: str, seen: int) -> bool:
    """End the use of a template; its versions stay."""
    lock_for_change(conn)
    t = templates.c
    gone = conn.execute(delete(templates).where(t.topic == topic, t.type == type_, t.version == seen))
    return gone.rowcount == 1


def _template(row: Mapping[str, object], *, is_current: bool) -> Template:
    created_at = row["created_at"]
    return Template(
        topic=str(row["topic"]),
        type=str(row["type"]),
        subject=str(row["subject"]),
        body=str(row["body"]),
        severity=str(row["severity"]),
        incident=str(row["incident"]),
        is_cleared=str(row["is_cleared"]),
        version=int(str(row["version"])),
        created_at=created_at if isinstance(created_at, datetime) else None,
        created_by=str(row["created_by"]),
        is_current=is_current,
    )
