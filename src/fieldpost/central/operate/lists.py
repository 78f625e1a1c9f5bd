"""Lists: add, change, remove, read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import (
    KEEP,
    Actions,
    Keep,
    check_name,
    commit,
    not_found,
    present,
    record,
    require,
    was_changed,
)
from fieldpost.central.operate.list_spec import (
    ListSpec,
    adapter_of,
    check,
    check_channel,
    check_channel_name,
    check_retry,
    check_sites,
    check_targets,
)
from fieldpost.central.operate.rerouting import release_rerouted
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import lists as rows
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.errors import Conflict
from fieldpost.core.lists import ListChange, NotificationList, compare

NAMED_MAX = 100
"""How many changed targets an audit entry names; it counts longer changes."""


class Lists(Actions):
    """Actions on lists."""

    def __init__(self, store: Store, adapters: Mapping[str, Adapter], clock: Clock) -> None:
        super().__init__(store, clock)
        self._adapters = adapters

    async def add(self, actor: Actor, spec: ListSpec) -> NotificationList:
        """Add a list. Duplicate targets are dropped; its type is fixed from now on."""
        require(actor, Role.ADMIN, "list.add")
        added = check(spec, self._adapters)
        await commit(self._store, f"list {added.name!r}", _add, added, actor, self._clock.now())
        return added

    async def change(
        self,
        actor: Actor,
        name: str,
        version: int,
        *,
        targets: Sequence[str] | Keep = KEEP,
        channel: str | Keep | None = KEEP,
        park_uncertain: bool | Keep = KEEP,
        retry: str | Keep | None = KEEP,
        allowed_sites: Sequence[str] | Keep | None = KEEP,
    ) -> NotificationList:
        """Replace the given properties if the list is still at `version`; the others stay."""
        require(actor, Role.ADMIN, "list.change")
        seen = await self.get(name)
        if seen.version != version:
            raise was_changed("list", name, seen.version)
        adapter = adapter_of(self._adapters, seen.type)
        wanted = replace(
            seen,
            targets=seen.targets if targets is KEEP else check_targets(adapter, targets),
            channel_name=seen.channel_name if channel is KEEP else check_channel_name(channel),
            park_uncertain=seen.park_uncertain if park_uncertain is KEEP else park_uncertain,
            retry=seen.retry if retry is KEEP else check_retry(retry),
            allowed_sites=seen.allowed_sites if allowed_sites is KEEP else check_sites(allowed_sites),
        )
        await commit(self._store, f"list {name!r}", _change, wanted, actor, self._clock.now(), now=self._store.now())
        self._store.wake.set()
        return replace(wanted, version=version + 1)

    async def remove(self, actor: Actor, name: str) -> None:
        """Remove the list. Notifications with resolved targets are still delivered; later ones park."""
        entry = self._begin(actor, Role.ADMIN, "list.remove", name)
        check_name("list", name)
        await commit(self._store, f"list {name!r}", _remove, name, entry)

    async def get(self, name: str) -> NotificationList:
        check_name("list", name)
        return present(await self._store.read(rows.get_list, name), "list", name)

    async def all(self) -> list[NotificationList]:
        return await self._store.read(rows.all_lists)


def _add(conn: Connection, added: NotificationList, actor: Actor, now: datetime) -> None:
    if rows.get_list(conn, added.name) is not None:
        raise Conflict("list.exists", f"list {added.name!r} already exists")
    check_channel(rows.directory(conn), added)
    rows.add_list(conn, added, now)
    extra = {"type": added.type, "targets": len(added.targets)}
    audit.add(conn, [record(actor, "list.add", added.name, now, extra)])


def _change(conn: Connection, wanted: NotificationList, actor: Actor, at: datetime, *, now: datetime | None) -> None:
    found = present(rows.get_list(conn, wanted.name), "list", wanted.name)
    before = rows.directory(conn)
    check_channel(before, wanted)
    if not rows.change_list(conn, wanted, at):
        raise was_changed("list", found.name, found.version)
    audit.add(conn, [record(actor, "list.change", wanted.name, at, audit_extra(compare(found, wanted)))])
    release_rerouted(conn, before, now=now)


def _remove(conn: Connection, name: str, entry: AuditEntry) -> None:
    if not rows.remove_list(conn, name):
        raise not_found("list", name)
    audit.add(conn, [entry])


def audit_extra(change: ListChange) -> dict[str, object]:
    """A change as its audit entry holds it: with the targets that were added or removed."""
    extra: dict[str, object] = {"properties": list(change.properties)}
    for name, targets in (("added", change.added), ("removed", change.removed)):
        extra[name] = list(targets) if len(targets) <= NAMED_MAX else len(targets)
    return extra
