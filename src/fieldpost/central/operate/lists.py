"""Lists: add, change, remove, look; import and export.

However a list comes in, by the API, the command line or a file, it is written down as a `ListSpec` first and checked by
the one `check` below.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import KEEP, Keep, commit, is_name, record, require
from fieldpost.central.operate.rerouting import free_moved
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import lists as rows
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.adapter import Adapter
from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.core.lists import Directory, ListChange, NotificationList, compare, plan_mark
from fieldpost.core.retry import RetryPolicy, parse
from fieldpost.core.text import check_label, check_list_name, check_path_name

TARGETS_MAX = 10_000
SITES_MAX = 1000
FAULTS_MAX = 100
"""So many faults of a file are told at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSpec:
    """A list as somebody gave it, not checked yet."""

    name: str
    type: str = "email"
    targets: Sequence[str]
    channel: str | None = None
    park_uncertain: bool = False
    retry: str | None = None
    allowed_sites: Sequence[str] | None = None
    place: str = ""
    """Where in a file it stands, for errors."""
    target_places: Sequence[str] = ()
    """The same for each target; else its place is its index."""


class Lists:
    """What people do with lists."""

    def __init__(self, store: Store, adapters: Mapping[str, Adapter], clock: Clock) -> None:
        self._store = store
        self._adapters = adapters
        self._clock = clock

    async def add(self, actor: Actor, spec: ListSpec) -> NotificationList:
        """A new list; the same target given twice gets one copy. Its type stays as it is from now on."""
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
        """What is given takes the place of what is there, if the list is still as `version` was; the rest stays."""
        require(actor, Role.ADMIN, "list.change")
        seen = await self.get(name)
        if seen.version != version:
            raise _changed(seen)
        wanted = replace(
            seen,
            targets=seen.targets if targets is KEEP else self._targets(seen.type, targets),
            channel_name=seen.channel_name if channel is KEEP else _check_channel_name(channel),
            park_uncertain=seen.park_uncertain if park_uncertain is KEEP else park_uncertain,
            retry=seen.retry if retry is KEEP else _check_retry(retry),
            allowed_sites=seen.allowed_sites if allowed_sites is KEEP else _check_sites(allowed_sites),
        )
        await commit(self._store, f"list {name!r}", _change, wanted, actor, self._clock.now(), now=self._store.now())
        self._store.wake.set()
        return replace(wanted, version=version + 1)

    async def remove(self, actor: Actor, name: str) -> None:
        """What is on its way to the list goes to the targets it was resolved to; what comes later parks."""
        require(actor, Role.ADMIN, "list.remove")
        if not is_name(name):
            raise _unknown(name)
        await commit(self._store, f"list {name!r}", _remove, name, actor, self._clock.now())

    async def plan_import(self, specs: Sequence[ListSpec]) -> list[ListChange]:
        """What an import would change, and nothing done; refused for the same reasons."""
        return await self._store.read(_plan, self._check_all(specs))

    def faults(self, specs: Sequence[ListSpec]) -> list[InvalidInput]:
        """All that is wrong with a file in itself, in its order, where an import would name the first alone."""
        found = (fault for spec in specs for fault in _faults(spec, self._adapters))
        return list(islice(found, FAULTS_MAX))

    async def import_all(self, actor: Actor, specs: Sequence[ListSpec], planned: str | None = None) -> list[ListChange]:
        """Make the lists what the file says, all of them or none; lists that it does not name stay as they are.

        With the mark of a plan (`core.lists.plan_mark`) exactly what was planned is done, or nothing: Conflict.
        """
        require(actor, Role.ADMIN, "list.import")
        wanted = self._check_all(specs)
        now = self._clock.now()
        changes = await commit(self._store, "a list", _import, wanted, actor, now, planned, now=self._store.now())
        self._store.wake.set()
        return changes

    async def get(self, name: str) -> NotificationList:
        found = await self._store.read(rows.get_list, name) if is_name(name) else None
        if found is None:
            raise _unknown(name)
        return found

    async def all(self) -> list[NotificationList]:
        return await self._store.read(rows.all_lists)

    async def export(self, actor: Actor) -> list[NotificationList]:
        """All of them, to be carried away: for administrators, and audited."""
        require(actor, Role.ADMIN, "list.export")
        found = await self.all()
        entry = record(actor, "list.export", "all", self._clock.now(), {"lists": len(found)})
        await self._store.write(audit.add, [entry])
        return found

    def _targets(self, type_: str, targets: Iterable[str]) -> tuple[str, ...]:
        return _check_targets(adapter_of(self._adapters, type_), targets, ())

    def _check_all(self, specs: Sequence[ListSpec]) -> list[NotificationList]:
        wanted: dict[str, NotificationList] = {}
        for spec in specs:
            checked = check(spec, self._adapters)
            if checked.name in wanted:
                raise _at(spec.place, InvalidInput("list.twice", f"the list {checked.name!r} stands there twice"))
            wanted[checked.name] = checked
        if not wanted:
            raise InvalidInput("import.empty", "there is no list in it")
        return list(wanted.values())


def check(spec: ListSpec, adapters: Mapping[str, Adapter]) -> NotificationList:
    """The list, or InvalidInput naming the field, and the place if it has one."""
    try:
        frame = _frame(spec, adapters)
        return replace(frame, targets=_check_targets(adapters[spec.type], spec.targets, spec.target_places))
    except InvalidInput as error:
        raise _at(spec.place, error) from None


def _frame(spec: ListSpec, adapters: Mapping[str, Adapter]) -> NotificationList:
    """The list without its targets."""
    return NotificationList(
        name=check_path_name(check_list_name(spec.name), "list_name"),
        type=adapter_of(adapters, spec.type).type,
        channel_name=_check_channel_name(spec.channel),
        park_uncertain=spec.park_uncertain,
        retry=_check_retry(spec.retry),
        allowed_sites=_check_sites(spec.allowed_sites),
    )


def _faults(spec: ListSpec, adapters: Mapping[str, Adapter]) -> Iterator[InvalidInput]:
    """What is wrong with the list itself, and then with each of its targets."""
    try:
        _frame(spec, adapters)
    except InvalidInput as error:
        yield _at(spec.place, error)
    adapter = adapters.get(spec.type)
    if adapter is None:
        return
    if not spec.targets:
        yield _at(spec.place, _no_targets())
    for number, address in enumerate(spec.targets):
        try:
            _check_target(adapter, address, number, spec.target_places)
        except InvalidInput as error:
            yield _at(spec.place, error)


def adapter_of(adapters: Mapping[str, Adapter], type_: str) -> Adapter:
    """The adapter of this type, or InvalidInput naming those there are."""
    adapter = adapters.get(type_)
    if adapter is None:
        known = ", ".join(sorted(adapters))
        raise InvalidInput(
            "type.unknown", f"there is no adapter of type {type_[:64]!r}; there are: {known}", field="type"
        )
    return adapter


def _check_channel_name(name: str | None) -> str | None:
    return None if name is None else check_label(name, "channel")


def _check_retry(text: str | None) -> RetryPolicy | None:
    return None if text is None else parse(text)


def _check_sites(sites: Iterable[str] | None) -> tuple[str, ...] | None:
    if sites is None:
        return None
    checked = sorted({check_label(site, "allowed_sites") for site in sites})
    if not checked:
        raise InvalidInput(
            "list.no_sites",
            "allowed_sites must name a site",
            hint="leave it out, or null, to take notifications from every site",
            field="allowed_sites",
        )
    if len(checked) > SITES_MAX:
        raise InvalidInput("list.too_many", f"allowed_sites are more than {SITES_MAX}", field="allowed_sites")
    return tuple(checked)


def _check_targets(adapter: Adapter, targets: Iterable[str], places: Sequence[str]) -> tuple[str, ...]:
    """In their one form, each addressee once, in the spelling that came first."""
    checked: dict[str, str] = {}
    for number, address in enumerate(targets):
        if number >= TARGETS_MAX:
            raise InvalidInput("list.too_many", f"targets are more than {TARGETS_MAX}", field="targets")
        target = _check_target(adapter, address, number, places)
        checked.setdefault(adapter.target_key(target), target)
    if not checked:
        raise _no_targets()
    return tuple(checked.values())


def _check_target(adapter: Adapter, address: str, number: int, places: Sequence[str]) -> str:
    try:
        return adapter.check_target(address)
    except InvalidInput as error:
        field = places[number] if number < len(places) else f"targets[{number}]"
        raise InvalidInput(error.code, f"{field}: {error.message}", hint=error.hint, field=field) from None


def _no_targets() -> InvalidInput:
    return InvalidInput("list.empty", "a list needs at least one target", field="targets")


def _add(conn: Connection, added: NotificationList, actor: Actor, now: datetime) -> None:
    if rows.get_list(conn, added.name) is not None:
        raise Conflict("list.exists", f"there is a list named {added.name!r} already")
    _check_channel(rows.directory(conn), added)
    rows.add_list(conn, added, now)
    extra = {"type": added.type, "targets": len(added.targets)}
    audit.add(conn, [record(actor, "list.add", added.name, now, extra)])


def _change(conn: Connection, wanted: NotificationList, actor: Actor, at: datetime, *, now: datetime | None) -> None:
    found = rows.get_list(conn, wanted.name)
    if found is None:
        raise _unknown(wanted.name)
    before = rows.directory(conn)
    _check_channel(before, wanted)
    if not rows.change_list(conn, wanted, at):
        raise _changed(found)
    audit.add(conn, [record(actor, "list.change", wanted.name, at, _extra(compare(found, wanted)))])
    free_moved(conn, before, now=now)


def _remove(conn: Connection, name: str, actor: Actor, now: datetime) -> None:
    if not rows.remove_list(conn, name):
        raise _unknown(name)
    audit.add(conn, [record(actor, "list.remove", name, now)])


def _plan(conn: Connection, wanted: Sequence[NotificationList]) -> list[ListChange]:
    """What would change; raises what an import would."""
    directory = rows.directory(conn)
    present = {found.name: found for found in rows.all_lists(conn)}
    changes = []
    for one in wanted:
        before = present.get(one.name)
        if before is not None and before.type != one.type:
            raise Conflict(
                "list.other_type", f"the list {one.name!r} is of type {before.type!r}, and a list's type is fixed"
            )
        _check_channel(directory, one)
        changes.append(compare(before, one))
    return changes


def _import(
    conn: Connection,
    wanted: Sequence[NotificationList],
    actor: Actor,
    at: datetime,
    planned: str | None,
    *,
    now: datetime | None,
) -> list[ListChange]:
    before = rows.directory(conn)
    changes = _plan(conn, wanted)
    if planned is not None and plan_mark(changes) != planned:
        raise Conflict(
            "import.changed",
            "the lists were changed since the preview, so nothing was imported",
            hint="look at the new preview, then import",
        )
    entries = []
    for one, change in zip(wanted, changes, strict=True):
        if change.is_new:
            rows.add_list(conn, one, at)
        elif not change.is_empty:
            seen = before.lists[one.name]
            if not rows.change_list(conn, replace(one, version=seen.version), at):
                raise _changed(seen)
        if not change.is_empty:
            act = "list.add" if change.is_new else "list.change"
            entries.append(record(actor, act, one.name, at, {"by": "import", **_extra(change)}))
    audit.add(conn, entries)
    free_moved(conn, before, now=now)
    return changes


def _extra(change: ListChange) -> dict[str, object]:
    """Whom somebody put on a list or took off it is what an audit is asked for; long changes are counted."""
    told: dict[str, object] = {"properties": list(change.properties)}
    for word, targets in (("added", change.added), ("removed", change.removed)):
        told[word] = list(targets) if len(targets) <= 100 else len(targets)
    return told


def _check_channel(directory: Directory, wanted: NotificationList) -> None:
    if wanted.channel_name is None:
        return
    channel = directory.channels.get(wanted.channel_name)
    if channel is None:
        raise InvalidInput("channel.unknown", f"there is no channel named {wanted.channel_name!r}", field="channel")
    if channel.type != wanted.type:
        raise InvalidInput(
            "channel.other_type",
            f"channel {wanted.channel_name!r} is of type {channel.type!r}, not {wanted.type!r}",
            field="channel",
        )


def _at(place: str, error: InvalidInput) -> InvalidInput:
    if not place:
        return error
    field = f"{place}.{error.field}" if error.field else place
    return InvalidInput(error.code, f"{place}: {error.message}", hint=error.hint, field=field)


def _unknown(name: str) -> NotFound:
    return NotFound("list.unknown", f"there is no list named {name!r}")


def _changed(current: NotificationList) -> Conflict:
    return Conflict(
        "list.changed",
        f"list {current.name!r} was changed meanwhile; it is at version {current.version}",
        hint="look at it again, then change it",
    )
