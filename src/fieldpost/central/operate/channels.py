"""Channels: add, change, remove, look."""

import re
from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import Connection

from fieldpost.central.operate.acts import commit, is_name, record, require
from fieldpost.central.operate.lists import adapter_of
from fieldpost.central.store import audit
from fieldpost.central.store import lists as rows
from fieldpost.central.store.engine import Store
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.adapter import Adapter
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.core.lists import Channel
from fieldpost.core.retry import parse
from fieldpost.core.text import check_label

HIDDEN = "***"
_SECRET = re.compile("password|secret|token|key", re.IGNORECASE)


class Channels:
    """What people do with channels."""

    def __init__(self, store: Store, adapters: Mapping[str, Adapter], clock: Clock) -> None:
        self._store = store
        self._adapters = adapters
        self._clock = clock

    async def add(
        self,
        actor: Actor,
        name: str,
        type_: str,
        settings: Mapping[str, object],
        *,
        is_default: bool = False,
        retry: str | None = None,
    ) -> Channel:
        """A new channel; as default it takes that place from the one of its type that had it."""
        require(actor, Role.ADMIN, "channel.add")
        checked = _check_settings(adapter_of(self._adapters, type_), settings)
        policy = None if retry is None else parse(retry)
        added = Channel(check_label(name, "name"), type_, checked, is_default, retry=policy)
        # Settings may hold secrets: the entry names them and never tells their values.
        extra = {"type": type_, "settings": sorted(settings), "is_default": is_default}
        entry = record(actor, "channel.add", added.name, self._clock.now(), extra)
        await commit(self._store, f"channel {name!r}", _add, added, entry)
        return added

    async def change(self, actor: Actor, name: str, settings: Mapping[str, object], version: int) -> Channel:
        """Put these settings over the present ones (None takes one away), if it is still as `version` was."""
        require(actor, Role.ADMIN, "channel.change")
        seen = await self.get(name)
        if seen.version != version:
            raise _changed(seen)
        merged = {**seen.settings, **settings}
        wanted = {key: value for key, value in merged.items() if value is not None}
        checked = _check_settings(adapter_of(self._adapters, seen.type), wanted)
        entry = record(actor, "channel.change", name, self._clock.now(), {"settings": sorted(settings)})
        await commit(self._store, f"channel {name!r}", _change, replace(seen, settings=checked), entry)
        return await self.get(name)

    async def remove(self, actor: Actor, name: str) -> None:
        """A channel that a list names is not removed."""
        require(actor, Role.ADMIN, "channel.remove")
        if not is_name(name):
            raise _unknown(name)
        entry = record(actor, "channel.remove", name, self._clock.now())
        await commit(self._store, f"channel {name!r}", _remove, name, entry)

    async def get(self, name: str) -> Channel:
        found = await self._store.read(rows.get_channel, name) if is_name(name) else None
        if found is None:
            raise _unknown(name)
        return found

    async def all(self) -> list[Channel]:
        return await self._store.read(rows.all_channels)

    def shown_settings(self, channel: Channel) -> dict[str, object]:
        """The settings as they may be seen: of a secret only that there is one."""
        return {
            name: HIDDEN if _SECRET.search(name) and value is not None else value
            for name, value in channel.settings.items()
        }


def _check_settings(adapter: Adapter, settings: Mapping[str, object]) -> dict[str, object]:
    try:
        return adapter.check_settings(settings)
    except InvalidInput as error:
        field = f"settings.{error.field}" if error.field else "settings"
        raise InvalidInput(error.code, error.message, hint=error.hint, field=field) from None


def _add(conn: Connection, added: Channel, entry: AuditEntry) -> None:
    if rows.get_channel(conn, added.name) is not None:
        raise Conflict("channel.exists", f"there is a channel named {added.name!r} already")
    rows.add_channel(conn, added, entry.occurred_at)
    audit.add(conn, [entry])


def _change(conn: Connection, wanted: Channel, entry: AuditEntry) -> None:
    if not rows.change_channel(conn, wanted, entry.occurred_at):
        found = rows.get_channel(conn, wanted.name)
        raise _unknown(wanted.name) if found is None else _changed(found)
    audit.add(conn, [entry])


def _remove(conn: Connection, name: str, entry: AuditEntry) -> None:
    users = [found.name for found in rows.directory(conn).lists.values() if found.channel_name == name]
    if users:
        raise Conflict("channel.in_use", f"channel {name!r} is used by {', '.join(sorted(users)[:5])}")
    if not rows.remove_channel(conn, name):
        raise _unknown(name)
    audit.add(conn, [entry])


def _unknown(name: str) -> NotFound:
    return NotFound("channel.unknown", f"there is no channel named {name!r}")


def _changed(current: Channel) -> Conflict:
    return Conflict(
        "channel.changed",
        f"channel {current.name!r} was changed meanwhile; it is at version {current.version}",
        hint="look at it again, then change it",
    )
