"""Channels: add, change, remove, look, test. Secrets go in and never come out."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog
from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import KEEP, Keep, commit, event_id, is_name, record, require
from fieldpost.central.operate.lists import adapter_of
from fieldpost.central.operate.rerouting import free_moved, try_soon
from fieldpost.central.secrets.keyring import NONCE_BYTES, Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import lists as rows
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.adapter import (
    Adapter,
    AttemptPhase,
    Described,
    Envelope,
    HostChecker,
    SettingField,
    SettingsWarner,
)
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.core.ids import NotificationId
from fieldpost.core.lists import Channel
from fieldpost.core.outcome import Outcome, PermanentFailure, Uncertain, scrubbed
from fieldpost.core.retry import parse
from fieldpost.core.secret import Secret, check_secret
from fieldpost.core.text import check_label, check_path_name

TEST_S = 120.0
"""How long somebody who tests a channel waits for its outcome."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a test: the outcome, and what was said, without secrets."""

    outcome: Outcome
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChannelType:
    """What a channel of a type can be told; of an adapter that does not describe itself only what is secret."""

    type: str
    secrets: frozenset[str]
    fields: Sequence[SettingField] = ()
    phases: Sequence[AttemptPhase] = ()
    guide: str = ""

    @property
    def plain_fields(self) -> list[SettingField]:
        return [field for field in self.fields if field.name not in self.secrets]


class ChannelActions:
    """What people do with channels."""

    def __init__(
        self, store: Store, adapters: Mapping[str, Adapter], clock: Clock, keyring: Keyring | None = None
    ) -> None:
        self._store = store
        self._adapters = adapters
        self._clock = clock
        self._keyring = keyring or Keyring()

    async def add(
        self,
        actor: Actor,
        name: str,
        type_: str,
        settings: Mapping[str, object],
        secrets: Mapping[str, object] | None = None,
        *,
        is_default: bool = False,
        retry: str | None = None,
    ) -> Channel:
        """A new channel; as default it takes that place from the one of its type that had it."""
        require(actor, Role.ADMIN, "channel.add")
        adapter = adapter_of(self._adapters, type_)
        policy = None if retry is None else parse(retry)
        empty = Channel(check_path_name(check_label(name, "name"), "name"), type_, {}, is_default, retry=policy)
        added = self._checked(adapter, empty, settings, secrets or {})
        await _locate(adapter, added.settings)
        # The entry names settings and secrets, and never tells a value.
        extra = {"type": type_, "settings": sorted(settings), "secrets": sorted(added.secrets)}
        entry = record(actor, "channel.add", name, self._clock.now(), {**extra, "is_default": is_default})
        await commit(self._store, f"channel {name!r}", _add, added, entry, now=self._store.now())
        return added

    async def change(
        self,
        actor: Actor,
        name: str,
        settings: Mapping[str, object],
        version: int,
        *,
        secrets: Mapping[str, object] | None = None,
        is_default: bool | Keep = KEEP,
        retry: str | Keep | None = KEEP,
    ) -> Channel:
        """Put these settings and secrets over the present ones, if it is still as `version` was.

        None takes a setting back to its default and clears a secret; an empty secret is none given, so it stays.
        """
        require(actor, Role.ADMIN, "channel.change")
        seen = await self.get(name)
        if seen.version != version:
            raise _changed(seen)
        wanted = replace(
            seen,
            is_default=seen.is_default if is_default is KEEP else is_default,
            retry=seen.retry if retry is KEEP else None if retry is None else parse(retry),
        )
        adapter = adapter_of(self._adapters, seen.type)
        wanted = self._checked(adapter, wanted, settings, secrets or {})
        # Only what is new is looked up: a name that has gone since must not keep anybody from mending the rest.
        await _locate(adapter, {n: v for n, v in wanted.settings.items() if seen.settings.get(n) != v})
        extra = {"settings": sorted(settings), "secrets": sorted(secrets or {}), "is_default": wanted.is_default}
        entry = record(actor, "channel.change", name, self._clock.now(), extra)
        await commit(self._store, f"channel {name!r}", _change, wanted, entry, now=self._store.now())
        self._store.wake.set()
        return replace(wanted, version=version + 1)

    async def remove(self, actor: Actor, name: str) -> None:
        """A channel that a list uses, by name or as the default, is not removed."""
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

    async def test(self, actor: Actor, name: str, to: str) -> Trial:
        """Send a test to one target by the channel as it stands, breaker or not. Audited before anything is sent."""
        require(actor, Role.ADMIN, "channel.test")
        channel = await self.get(name)
        adapter = adapter_of(self._adapters, channel.type)
        try:
            target = adapter.check_target(to)
        except InvalidInput as error:
            raise InvalidInput(error.code, f"to: {error.message}", hint=error.hint, field="to") from None
        opened = self._keyring.open_channel(channel)
        now = self._clock.now()
        await self._store.write(audit.add, [record(actor, "channel.test", name, now, {"to": target})])
        said: list[str] = []
        envelope = Envelope(
            notification_id=NotificationId(event_id(now)),
            list_name=name,
            subject=f"Test of the channel {name}",
            body=f"{actor.name} tested the channel {name} of Fieldpost. There is nothing to do.\n",
            targets=(target,),
            settings=opened.settings,
            dated=now,
            gate=_no_gate,
            transcript=said.append,
        )
        outcome = scrubbed(await _deliver(adapter, envelope), opened.scrub)
        log.info("channel.tested", channel=name, actor=actor.name, outcome=outcome.word, error=outcome.error)
        return Trial(outcome, tuple(map(opened.scrub, said)))

    def types(self) -> dict[str, ChannelType]:
        """Of which types channels can be made, by name."""
        return {name: _type_of(self._adapters[name]) for name in sorted(self._adapters)}

    def shown_secrets(self, channel: Channel) -> dict[str, str]:
        """Of each secret that there is one, and whether this node can read it; never what it says."""
        trouble = self._keyring.trouble_of(channel)
        return dict.fromkeys(sorted(channel.secrets), "set" if trouble is None else "unreadable")

    def warnings(self, channel: Channel) -> list[str]:
        """What about its settings is lawful and probably not meant."""
        adapter: object = self._adapters.get(channel.type)
        return adapter.warnings(channel.settings) if isinstance(adapter, SettingsWarner) else []

    def _checked(
        self, adapter: Adapter, base: Channel, settings: Mapping[str, object], secrets: Mapping[str, object]
    ) -> Channel:
        """The channel with these settings and secrets over its own, checked together and the new secrets sealed."""
        _check_apart(adapter, settings, secrets)
        fresh = {n: check_secret(v, f"secrets.{n}") for n, v in secrets.items() if v is not None and v != ""}
        kept = {n: sealed for n, sealed in base.secrets.items() if n not in fresh and secrets.get(n, "") is not None}
        merged: dict[str, object] = {n: v for n, v in {**base.settings, **settings}.items() if v is not None}
        # Of a secret that stays only its presence matters to the check, and it may be one that cannot be read.
        merged |= dict.fromkeys(kept, _KEPT) | fresh
        checked = {n: v for n, v in _check_settings(adapter, merged).items() if n not in adapter.secrets}
        sealed = {n: self._keyring.seal(s, base.name, n, os.urandom(NONCE_BYTES)) for n, s in fresh.items()}
        return replace(base, settings=checked, secrets=kept | sealed)


def _type_of(adapter: Adapter) -> ChannelType:
    described: object = adapter
    if not isinstance(described, Described):
        return ChannelType(adapter.type, adapter.secrets)
    return ChannelType(adapter.type, adapter.secrets, described.fields, described.phases, described.guide)


async def _locate(adapter: object, settings: Mapping[str, object]) -> None:
    if not isinstance(adapter, HostChecker):
        return
    try:
        await adapter.check_hosts(settings)
    except InvalidInput as error:
        field = f"settings.{error.field}"
        raise InvalidInput(error.code, f"{field}: {error.message}", hint=error.hint, field=field) from None


_KEPT = Secret("a secret that stays as it is")


def _check_apart(adapter: Adapter, settings: Mapping[str, object], secrets: Mapping[str, object]) -> None:
    """Secrets and settings do not mix: what came in the wrong place might be shown or logged as what it is not."""
    for name in settings:
        if name in adapter.secrets:
            raise InvalidInput(
                "settings.is_secret",
                f"{name} is a secret, not a plain setting",
                hint=f"give it under secrets; on the command line: --secret {name}",
                field=f"settings.{name}",
            )
    for name in secrets:
        if name not in adapter.secrets:
            known = ", ".join(sorted(adapter.secrets)) or "none"
            raise InvalidInput(
                "settings.no_secret",
                f"{name[:64]!r} is no secret of a channel of type {adapter.type!r}; there are: {known}",
                field=f"secrets.{name[:64]}",
            )


def _check_settings(adapter: Adapter, settings: Mapping[str, object]) -> dict[str, object]:
    try:
        return adapter.check_settings(settings)
    except InvalidInput as error:
        room = "secrets" if error.field in adapter.secrets else "settings"
        field = f"{room}.{error.field}" if error.field else room
        raise InvalidInput(error.code, error.message, hint=error.hint, field=field) from None


async def _deliver(adapter: Adapter, envelope: Envelope) -> Outcome:
    timeout_s = min(TEST_S, adapter.deadline_s)
    try:
        async with asyncio.timeout(timeout_s) as deadline:
            return await adapter.deliver(envelope)
    except Exception as error:
        if isinstance(error, TimeoutError) and deadline.expired():
            return Uncertain(f"no result within {timeout_s:g} s", phase="deadline")
        log.exception("channel.test_crashed", type=adapter.type)
        return PermanentFailure(f"the {adapter.type} adapter failed: {type(error).__name__}: {error}", phase="bug")


def _no_gate() -> None:
    """A test has no claim that could be lost."""


def _add(conn: Connection, added: Channel, entry: AuditEntry, *, now: datetime | None) -> None:
    before = rows.directory(conn)
    if added.name in before.channels:
        raise Conflict("channel.exists", f"there is a channel named {added.name!r} already")
    rows.add_channel(conn, added, entry.occurred_at)
    audit.add(conn, [entry])
    free_moved(conn, before, now=now)


def _change(conn: Connection, wanted: Channel, entry: AuditEntry, *, now: datetime | None) -> None:
    before = rows.directory(conn)
    found = before.channels.get(wanted.name)
    if found is None:
        raise _unknown(wanted.name)
    if not rows.change_channel(conn, wanted, entry.occurred_at):
        raise _changed(found)
    audit.add(conn, [entry])
    free_moved(conn, before, now=now)
    try_soon(conn, wanted.name, now=now)


def _remove(conn: Connection, name: str, entry: AuditEntry) -> None:
    directory = rows.directory(conn)
    users = sorted(
        found.name
        for found in directory.lists.values()
        if found.channel_name == name or ((used := directory.channel_of(found)) is not None and used.name == name)
    )
    if users:
        raise Conflict(
            "channel.in_use",
            f"channel {name!r} is used by {', '.join(users[:5])}{' and others' if len(users) > 5 else ''}",
            hint="give these lists another channel, or make another one the default, first",
        )
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
