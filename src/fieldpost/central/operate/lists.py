"""Lists: add, change, remove, read."""

from collections.abc import Collection, Mapping, Sequence
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
    check,
    check_channel,
    check_channel_name,
    check_no_path,
    check_rate,
    check_retry,
    check_sites,
    check_targets_of,
    no_targets,
)
from fieldpost.central.operate.rerouting import check_redirected_list, release_rerouted
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.secrets.target_secrets import check_target_secrets, seal_secrets
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import lists as rows
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.alarm import check_severity
from fieldpost.core.audit import AuditEntry
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.delivery.routing import Directory
from fieldpost.core.errors import Conflict
from fieldpost.core.lists import LISTS_TYPE, ListChange, NotificationList, compare
from fieldpost.core.wholes import check_depth

NAMED_MAX = 100
"""How many changed targets an audit entry names; it counts longer changes."""


class Lists(Actions):
    """Actions on lists."""

    def __init__(
        self, store: Store, adapters: Mapping[str, Adapter], clock: Clock, keyring: Keyring | None = None
    ) -> None:
        super().__init__(store, clock)
        self._adapters = adapters
        self._keyring = keyring or Keyring()

    async def add(self, actor: Actor, spec: ListSpec) -> NotificationList:
        """Add a list. Duplicate targets are dropped; its type is fixed from now on.

        A list without targets serves routes whose events name the address.
        """
        require(actor, Role.ADMIN, "list.add")
        added = check(spec, self._adapters)
        given = check_target_secrets(added, self._adapters, spec.secrets)
        added = seal_secrets(self._keyring, None, added, given)
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
        severity: str | Keep | None = KEEP,
        rate: str | Keep | None = KEEP,
        secrets: Mapping[str, object] | Keep = KEEP,
    ) -> NotificationList:
        """Replace the given properties if the list is still at `version`; the others stay.

        None clears the secret of a target; an empty text keeps it.
        """
        require(actor, Role.ADMIN, "list.change")
        seen = await self.get(name)
        if seen.version != version:
            raise was_changed("list", name, seen.version)
        wanted = replace(
            seen,
            targets=seen.targets if targets is KEEP else check_targets_of(seen, self._adapters, targets),
            channel_name=seen.channel_name if channel is KEEP else check_channel_name(channel),
            park_uncertain=seen.park_uncertain if park_uncertain is KEEP else park_uncertain,
            retry=seen.retry if retry is KEEP else check_retry(retry),
            allowed_sites=seen.allowed_sites if allowed_sites is KEEP else check_sites(allowed_sites),
            severity=seen.severity if severity is KEEP else check_severity(severity),
            rate=seen.rate if rate is KEEP else check_rate(rate),
        )
        if wanted.type == LISTS_TYPE:
            check_no_path(
                channel=wanted.channel_name,
                retry=wanted.retry,
                park_uncertain=wanted.park_uncertain,
                severity=wanted.severity,
                rate=wanted.rate,
            )
        if seen.targets and not wanted.targets:
            raise no_targets()
        given = check_target_secrets(wanted, self._adapters, {} if secrets is KEEP else secrets)
        wanted = seal_secrets(self._keyring, seen, wanted, given)
        change = (wanted, actor, self._clock.now(), self._adapters, given)
        await commit(self._store, f"list {name!r}", _change, *change, now=self._store.now())
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
    directory = rows.directory(conn)
    check_channel(directory, added)
    check_depth(added, types_of(directory).get, rows.naming(conn, added.name))
    rows.add_list(conn, added, now)
    extra = {"type": added.type, "targets": len(added.targets), "secrets": sorted(added.secrets)}
    audit.add(conn, [record(actor, "list.add", added.name, now, extra)])


def _change(
    conn: Connection,
    wanted: NotificationList,
    actor: Actor,
    at: datetime,
    adapters: Mapping[str, Adapter],
    given: Collection[str],
    *,
    now: datetime | None,
) -> None:
    found = present(rows.get_list(conn, wanted.name), "list", wanted.name)
    before = rows.directory(conn)
    check_channel(before, wanted)
    check_depth(wanted, types_of(before).get, rows.naming(conn, wanted.name))
    if not rows.change_list(conn, wanted, at):
        raise was_changed("list", found.name, found.version)
    check_redirected_list(conn, before, adapters, wanted.name, given)
    audit.add(conn, [record(actor, "list.change", wanted.name, at, audit_extra(compare(found, wanted)))])
    release_rerouted(conn, before, now=now)


def _remove(conn: Connection, name: str, entry: AuditEntry) -> None:
    if not rows.remove_list(conn, name):
        raise not_found("list", name)
    audit.add(conn, [entry])


def types_of(directory: Directory) -> dict[str, str]:
    """The types of all lists, by name."""
    return {name: found.type for name, found in directory.lists.items()}


def audit_extra(change: ListChange) -> dict[str, object]:
    """A change as its audit entry holds it: with the targets that were added or removed."""
    extra: dict[str, object] = {"properties": list(change.properties)}
    for name, targets in (("added", change.added), ("removed", change.removed)):
        extra[name] = list(targets) if len(targets) <= NAMED_MAX else len(targets)
    return extra
