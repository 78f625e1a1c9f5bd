"""Lists: add, remove, look."""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection

from fieldpost.central.operate.acts import commit, is_name, record, require
from fieldpost.central.store import audit
from fieldpost.central.store import lists as rows
from fieldpost.central.store.engine import Store
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.adapter import Adapter
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.core.lists import NotificationList
from fieldpost.core.retry import parse
from fieldpost.core.text import check_label, check_list_name

TARGETS_MAX = 10_000


class Lists:
    """What people do with lists."""

    def __init__(self, store: Store, adapters: Mapping[str, Adapter], clock: Clock) -> None:
        self._store = store
        self._adapters = adapters
        self._clock = clock

    async def add(
        self,
        actor: Actor,
        name: str,
        type_: str,
        targets: Iterable[str],
        channel_name: str | None = None,
        *,
        park_uncertain: bool = False,
        retry: str | None = None,
    ) -> NotificationList:
        """A new list; the same target given twice gets one copy. Its type stays as it is from now on."""
        require(actor, Role.ADMIN, "list.add")
        added = NotificationList(
            check_list_name(name),
            type_,
            None if channel_name is None else check_label(channel_name, "channel"),
            self._check_targets(adapter_of(self._adapters, type_), targets),
            park_uncertain,
            retry=None if retry is None else parse(retry),
        )
        now = self._clock.now()
        entry = record(actor, "list.add", added.name, now, {"type": added.type, "targets": len(added.targets)})
        await commit(self._store, f"list {name!r}", _add, added, entry)
        return added

    async def remove(self, actor: Actor, name: str) -> None:
        """What is on its way to the list goes to the targets it was resolved to; what comes later parks."""
        require(actor, Role.ADMIN, "list.remove")
        if not is_name(name):
            raise _unknown(name)
        await commit(
            self._store, f"list {name!r}", _remove, name, record(actor, "list.remove", name, self._clock.now())
        )

    async def get(self, name: str) -> NotificationList:
        found = await self._store.read(rows.get_list, name) if is_name(name) else None
        if found is None:
            raise _unknown(name)
        return found

    async def all(self) -> list[NotificationList]:
        return await self._store.read(rows.all_lists)

    def _check_targets(self, adapter: Adapter, targets: Iterable[str]) -> tuple[str, ...]:
        checked: dict[str, None] = {}
        for number, address in enumerate(targets):
            if number >= TARGETS_MAX:
                raise InvalidInput("list.too_many", f"targets are more than {TARGETS_MAX}", field="targets")
            try:
                checked[adapter.check_target(address)] = None
            except InvalidInput as error:
                field = f"targets[{number}]"
                raise InvalidInput(error.code, f"{field}: {error.message}", hint=error.hint, field=field) from None
        if not checked:
            raise InvalidInput("list.empty", "a list needs at least one target", field="targets")
        return tuple(checked)


def adapter_of(adapters: Mapping[str, Adapter], type_: str) -> Adapter:
    """The adapter of this type, or InvalidInput naming those there are."""
    adapter = adapters.get(type_)
    if adapter is None:
        known = ", ".join(sorted(adapters))
        raise InvalidInput(
            "type.unknown", f"there is no adapter of type {type_[:64]!r}; there are: {known}", field="type"
        )
    return adapter


def _add(conn: Connection, added: NotificationList, entry: AuditEntry) -> None:
    if rows.get_list(conn, added.name) is not None:
        raise Conflict("list.exists", f"there is a list named {added.name!r} already")
    if added.channel_name is not None:
        _check_channel(conn, added.channel_name, added.type)
    rows.add_list(conn, added, entry.occurred_at)
    audit.add(conn, [entry])


def _check_channel(conn: Connection, channel_name: str, type_: str) -> None:
    channel = rows.get_channel(conn, channel_name)
    if channel is None:
        raise InvalidInput("channel.unknown", f"there is no channel named {channel_name!r}", field="channel")
    if channel.type != type_:
        raise InvalidInput(
            "channel.other_type",
            f"channel {channel_name!r} is of type {channel.type!r}, not {type_!r}",
            field="channel",
        )


def _remove(conn: Connection, name: str, entry: AuditEntry) -> None:
    if not rows.remove_list(conn, name):
        raise _unknown(name)
    audit.add(conn, [entry])


def _unknown(name: str) -> NotFound:
    return NotFound("list.unknown", f"there is no list named {name!r}")
