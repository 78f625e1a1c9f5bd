"""Import and export of lists: plan an import, apply it as a whole, export everything."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, commit, record, require, was_changed
from fieldpost.central.operate.list_spec import ListSpec, at_place, check, check_channel, faults
from fieldpost.central.operate.lists import audit_extra, types_of
from fieldpost.central.operate.rerouting import release_rerouted, secrets_again
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.secrets.target_secrets import check_target_secrets, seal_secrets
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import lists as rows
from fieldpost.central.store.schema import catalogue
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.delivery.destination import redirected_lists
from fieldpost.core.delivery.routing import Directory
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.lists import LISTS_TYPE, ListChange, NotificationList, compare, plan_mark
from fieldpost.core.wholes import check_depth

SealRule = Callable[[NotificationList | None, NotificationList], NotificationList]
FAULTS_MAX = 100
"""How many errors of a file are reported at once."""


class ListFiles(Actions):
    """Many lists at once. An import leaves lists that the file does not name as they are."""

    def __init__(
        self, store: Store, adapters: Mapping[str, Adapter], clock: Clock, keyring: Keyring | None = None
    ) -> None:
        super().__init__(store, clock)
        self._adapters = adapters
        self._keyring = keyring or Keyring()

    def faults(self, specs: Sequence[ListSpec]) -> list[InvalidInput]:
        """The errors of the file in its order; an import stops at the first one."""
        found = (fault for spec in specs for fault in faults(spec, self._adapters))
        return list(islice(found, FAULTS_MAX))

    async def plan(self, specs: Sequence[ListSpec]) -> list[ListChange]:
        """The changes that an import would make; raises the same errors as the import."""
        wanted = self._check_all(specs)
        args = (wanted, _by_name(specs), self._adapters, self._sealing(specs))
        return [change for _, change in await self._store.read(_plan, *args)]

    async def import_all(self, actor: Actor, specs: Sequence[ListSpec], planned: str | None = None) -> list[ListChange]:
        """Make the lists equal to the file, all of them or none.

        With the mark of a plan (`core.lists.plan_mark`) it makes exactly the planned changes, or raises Conflict.
        """
        require(actor, Role.ADMIN, "list.import")
        wanted = self._check_all(specs)
        plan = (wanted, _by_name(specs), self._adapters, self._sealing(specs))
        args = (plan, actor, self._clock.now(), planned)
        changes = await commit(self._store, "a list", _import, *args, now=self._store.now())
        self._store.wake.set()
        return changes

    async def export(self, actor: Actor) -> list[NotificationList]:
        """All lists. Audited, since they hold everybody's addresses."""
        require(actor, Role.ADMIN, "list.export")
        found = await self._store.read(rows.all_lists)
        entry = record(actor, "list.export", "all", self._clock.now(), {"lists": len(found)})
        await self._store.write(audit.add, [entry])
        return found

    def _sealing(self, specs: Sequence[ListSpec]) -> SealRule:
        """The rule that gives a list its secrets: those of the file, else the present ones."""
        given = _by_name(specs)

        def seal(before: NotificationList | None, wanted: NotificationList) -> NotificationList:
            spec = given[wanted.name]
            try:
                secrets = check_target_secrets(wanted, self._adapters, spec.secrets)
            except InvalidInput as error:
                raise at_place(spec.place, error) from None
            return seal_secrets(self._keyring, before, wanted, secrets)

        return seal

    def _check_all(self, specs: Sequence[ListSpec]) -> list[NotificationList]:
        wanted: dict[str, NotificationList] = {}
        for spec in specs:
            checked = check(spec, self._adapters)
            if checked.name in wanted:
                raise at_place(spec.place, InvalidInput("list.twice", f"list {checked.name!r} appears twice"))
            wanted[checked.name] = checked
        if not wanted:
            raise InvalidInput("import.empty", "the file contains no list")
        return list(wanted.values())


def _by_name(specs: Sequence[ListSpec]) -> dict[str, ListSpec]:
    return {spec.name: spec for spec in specs}


def _plan(
    conn: Connection,
    wanted: Sequence[NotificationList],
    specs: Mapping[str, ListSpec],
    adapters: Mapping[str, Adapter],
    seal: SealRule,
) -> list[tuple[NotificationList, ListChange]]:
    """Each list with its secrets, and how it changes."""
    directory = rows.directory(conn)
    present = {found.name: found for found in rows.all_lists(conn)}
    types = types_of(directory) | {one.name: one.type for one in wanted}
    users = _users({**present, **{one.name: one for one in wanted}}.values())
    planned = []
    for one in wanted:
        before, place = present.get(one.name), specs[one.name].place
        if before is not None and before.type != one.type:
            raise Conflict(
                "list.other_type",
                f"{place}: list {one.name!r} has type {before.type!r}; the type of a list cannot change",
                field=place,
            )
        try:
            check_channel(directory, one)
            check_depth(one, types.get, users.get(one.name, ()))
        except InvalidInput as error:
            raise at_place(place, error) from None
        sealed = seal(before, one)
        planned.append((sealed, compare(before, sealed)))
    after = Directory({**directory.lists, **{one.name: one for one, _ in planned}}, directory.channels)
    redirected = redirected_lists(directory, after, adapters)
    for one in (one for one, _ in planned if one.name in redirected):
        spec = specs[one.name]
        if kept := one.secrets.keys() - {label for label, secret in spec.secrets.items() if secret}:
            raise at_place(spec.place, secrets_again(one.name, kept))
    return planned


def _users(lists: Iterable[NotificationList]) -> dict[str, list[str]]:
    """The lists of lists that name each list."""
    users: dict[str, list[str]] = {}
    for found in lists:
        for member in found.targets if found.type == LISTS_TYPE else ():
            users.setdefault(member, []).append(found.name)
    return users


def _import(
    conn: Connection,
    plan: tuple[Sequence[NotificationList], Mapping[str, ListSpec], Mapping[str, Adapter], SealRule],
    actor: Actor,
    at: datetime,
    planned: str | None,
    *,
    now: datetime | None,
) -> list[ListChange]:
    catalogue.count_change(conn, catalogue.PATHS)  # locks the channels' settings, by which the plan is checked
    before = rows.directory(conn)
    found = _plan(conn, *plan)
    changes = [change for _, change in found]
    if planned is not None and plan_mark(changes) != planned:
        raise Conflict(
            "import.changed",
            "the lists have changed since the preview, so nothing was imported",
            hint="check the new preview, then import",
        )
    entries = []
    for one, change in found:
        if change.is_empty:
            continue
        if change.is_new:
            rows.add_list(conn, one, at)
        else:
            seen = before.lists[one.name]
            if not rows.change_list(conn, replace(one, version=seen.version), at):
                raise was_changed("list", one.name, seen.version)
        action = "list.add" if change.is_new else "list.change"
        entries.append(record(actor, action, one.name, at, {"by": "import", **audit_extra(change)}))
    audit.add(conn, entries)
    release_rerouted(conn, before, now=now)
    return changes
