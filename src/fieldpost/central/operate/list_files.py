"""Import and export of lists: plan an import, apply it as a whole, export everything."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, commit, record, require, was_changed
from fieldpost.central.operate.list_spec import ListSpec, at_place, check, check_channel, faults
from fieldpost.central.operate.lists import audit_extra
from fieldpost.central.operate.rerouting import release_rerouted
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import lists as rows
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.lists import ListChange, NotificationList, compare, plan_mark

FAULTS_MAX = 100
"""How many errors of a file are reported at once."""


class ListFiles(Actions):
    """Many lists at once. An import leaves lists that the file does not name as they are."""

    def __init__(self, store: Store, adapters: Mapping[str, Adapter], clock: Clock) -> None:
        super().__init__(store, clock)
        self._adapters = adapters

    def faults(self, specs: Sequence[ListSpec]) -> list[InvalidInput]:
        """The errors of the file in its order; an import stops at the first one."""
        found = (fault for spec in specs for fault in faults(spec, self._adapters))
        return list(islice(found, FAULTS_MAX))

    async def plan(self, specs: Sequence[ListSpec]) -> list[ListChange]:
        """The changes that an import would make; raises the same errors as the import."""
        return await self._store.read(_plan, self._check_all(specs), _places(specs))

    async def import_all(self, actor: Actor, specs: Sequence[ListSpec], planned: str | None = None) -> list[ListChange]:
        """Make the lists equal to the file, all of them or none.

        With the mark of a plan (`core.lists.plan_mark`) it makes exactly the planned changes, or raises Conflict.
        """
        require(actor, Role.ADMIN, "list.import")
        wanted = self._check_all(specs)
        now = self._clock.now()
        changes = await commit(
            self._store, "a list", _import, wanted, actor, now, planned, _places(specs), now=self._store.now()
        )
        self._store.wake.set()
        return changes

    async def export(self, actor: Actor) -> list[NotificationList]:
        """All lists. Audited, since they hold everybody's addresses."""
        require(actor, Role.ADMIN, "list.export")
        found = await self._store.read(rows.all_lists)
        entry = record(actor, "list.export", "all", self._clock.now(), {"lists": len(found)})
        await self._store.write(audit.add, [entry])
        return found

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


def _places(specs: Sequence[ListSpec]) -> dict[str, str]:
    """The place of each list in the file."""
    return {spec.name: spec.place for spec in specs}


def _plan(conn: Connection, wanted: Sequence[NotificationList], places: Mapping[str, str]) -> list[ListChange]:
    directory = rows.directory(conn)
    present = {found.name: found for found in rows.all_lists(conn)}
    changes = []
    for one in wanted:
        before = present.get(one.name)
        if before is not None and before.type != one.type:
            raise Conflict(
                "list.other_type",
                f"{places[one.name]}: list {one.name!r} has type {before.type!r}; the type of a list cannot change",
                field=places[one.name],
            )
        try:
            check_channel(directory, one)
        except InvalidInput as error:
            raise at_place(places[one.name], error) from None
        changes.append(compare(before, one))
    return changes


def _import(
    conn: Connection,
    wanted: Sequence[NotificationList],
    actor: Actor,
    at: datetime,
    planned: str | None,
    places: Mapping[str, str],
    *,
    now: datetime | None,
) -> list[ListChange]:
    before = rows.directory(conn)
    changes = _plan(conn, wanted, places)
    if planned is not None and plan_mark(changes) != planned:
        raise Conflict(
            "import.changed",
            "the lists have changed since the preview, so nothing was imported",
            hint="check the new preview, then import",
        )
    entries = []
    for one, change in zip(wanted, changes, strict=True):
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
