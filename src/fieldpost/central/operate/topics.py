"""Topics: save and archive."""

from dataclasses import replace
from uuid import uuid4

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import KEEP, Actions, Keep, commit, present, record, require, was_changed
from fieldpost.central.store.events import topics
from fieldpost.central.store.notifications import audit
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict
from fieldpost.core.events.topic import Topic, check_topic, check_topic_name
from fieldpost.core.zgw.notification import KANAAL_LENGTH_MAX

_SHOWN = ("description", "attributes", "schema", "example", "owners", "archived_at", "kanaal_id", "documentation_url")


class TopicActions(Actions):
    """Actions on topics."""

    async def save(
        self,
        actor: Actor,
        topic: Topic,
        seen: int | None,
        *,
        is_archived: bool = False,
        is_kanaal: bool | Keep = KEEP,
    ) -> Topic:
        """Add the topic, or replace all of it; the example must fit the schema. Whether it is a kanaal of the ZGW API
        stays as it is unless given.

        `seen` is the version that the caller saw, None to add. Raises Conflict if the topic changed since, or exists.
        """
        require(actor, Role.ADMIN, "topic.save")
        check_topic(topic)
        if is_kanaal is True:
            check_topic_name(topic.name, "name", KANAAL_LENGTH_MAX)
        entry = record(actor, "topic.save", topic.name, self._clock.now())
        return await commit(self._store, f"topic {topic.name!r}", _save, topic, seen, is_archived, is_kanaal, entry)

    async def archive(self, actor: Actor, name: str, seen: int) -> Topic:
        """Archive the topic: it stays, and its events are rejected from now on."""
        require(actor, Role.ADMIN, "topic.archive")
        entry = record(actor, "topic.archive", check_topic_name(name, "name"), self._clock.now())
        return await commit(self._store, f"topic {name!r}", _archive, name, seen, entry)


def _save(
    conn: Connection, topic: Topic, seen: int | None, is_archived: bool, is_kanaal: bool | Keep, entry: AuditEntry
) -> Topic:
    now = entry.occurred_at
    found = topics.get(conn, topic.name)
    kept = found.kanaal_id if found else None
    if is_kanaal is not KEEP:
        kept = (kept or str(uuid4())) if is_kanaal else None
    link = topic.documentation_url or (found.documentation_url if found else None)
    topic = replace(topic, kanaal_id=kept, documentation_url=link)
    if seen is None:
        if found is not None:
            raise Conflict("topic.exists", f"topic {topic.name!r} already exists", hint="give its version to change it")
        made = replace(topic, archived_at=now if is_archived else None)
        topics.add(conn, made, now)
        audit.add(conn, [replace(entry, extra={**(entry.extra or {}), "is_new": True})])
        return made
    found = present(found, "topic", topic.name)
    archived_at = (found.archived_at or now) if is_archived else None
    return _change(conn, found, replace(topic, archived_at=archived_at, version=seen), entry)


def _archive(conn: Connection, name: str, seen: int, entry: AuditEntry) -> Topic:
    found = present(topics.get(conn, name), "topic", name)
    return _change(conn, found, replace(found, archived_at=found.archived_at or entry.occurred_at, version=seen), entry)


def _change(conn: Connection, found: Topic, wanted: Topic, entry: AuditEntry) -> Topic:
    if not topics.change(conn, wanted, entry.occurred_at):
        raise was_changed("topic", wanted.name, found.version)
    changed = [name for name in _SHOWN if getattr(found, name) != getattr(wanted, name)]
    audit.add(conn, [replace(entry, extra={**(entry.extra or {}), "changed": changed})])
    return replace(wanted, version=wanted.version + 1)
