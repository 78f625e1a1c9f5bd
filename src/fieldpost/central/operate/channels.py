"""Channels: add, change, remove, read, test. Secrets are write-only."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import structlog
from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import (
    KEEP,
    Actions,
    Keep,
    check_name,
    commit,
    event_id,
    not_found,
    present,
    record,
    require,
    was_changed,
)
from fieldpost.central.operate.channel_settings import (
    ChannelType,
    apply_changes,
    check_channel_destination,
    check_hosts,
    setting_changes,
    type_of,
)
from fieldpost.central.operate.list_spec import adapter_of, check_rate
from fieldpost.central.operate.rerouting import check_redirected, mark_tried, probe_soon, release_rerouted
from fieldpost.central.operate.trial import Trial, deliver_test
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import lists as rows
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.delivery.adapter import Adapter, Envelope, SecretTargets, SettingsWarner, TextCosts
from fieldpost.core.delivery.outcome import Delivered, scrubbed
from fieldpost.core.delivery.receipt import check_receipt_missing, check_receipt_wait
from fieldpost.core.delivery.retry import check_fixed, parse, to_text
from fieldpost.core.delivery.routing import lists_of
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.ids import NotificationId
from fieldpost.core.lists import Channel
from fieldpost.core.secret import Scrubber, Secret
from fieldpost.core.text import check_label, check_path_name

log = structlog.get_logger()


class ChannelActions(Actions):
    """Actions on channels."""

    def __init__(
        self, store: Store, adapters: Mapping[str, Adapter], clock: Clock, keyring: Keyring | None = None
    ) -> None:
        super().__init__(store, clock)
        self._adapters = adapters
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
        max_retries: object = None,
        retry_delay_s: object = None,
        rate: object = None,
        receipt_wait_s: object = None,
        receipt_missing: object = None,
    ) -> Channel:
        """Add a channel. As the default of its type it replaces the former default."""
        require(actor, Role.ADMIN, "channel.add")
        adapter = adapter_of(self._adapters, type_)
        policy = None if retry is None else parse(retry)
        attempts, wait_s = check_fixed(max_retries, retry_delay_s)
        checked = check_path_name(check_label(name, "name"), "name")
        empty = Channel(
            checked,
            type_,
            {},
            is_default,
            retry=policy,
            max_retries=attempts,
            retry_delay_s=wait_s,
            rate=check_rate(rate),
            receipt_wait_s=check_receipt_wait(receipt_wait_s),
            receipt_missing=check_receipt_missing(receipt_missing),
        )
        added = apply_changes(self._keyring, adapter, empty, settings, secrets or {})
        await check_hosts(adapter, added.settings)
        # The entry has the values of plain settings, and only the names of secrets.
        extra = {
            "type": type_,
            "settings": sorted(settings),
            "changes": setting_changes({}, added.settings),
            "secrets": sorted(added.secrets),
            "is_default": is_default,
        }
        entry = record(actor, "channel.add", name, self._clock.now(), extra)
        await commit(self._store, f"channel {name!r}", _add, added, entry, self._adapters, now=self._store.now())
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
        max_retries: object = KEEP,
        retry_delay_s: object = KEEP,
        rate: object = KEEP,
        receipt_wait_s: object = KEEP,
        receipt_missing: object = KEEP,
    ) -> Channel:
        """Replace the given settings, secrets and retry fields if the channel is still at `version`; the others stay.

        None resets a setting or retry field to its default and clears a secret; an empty text keeps the secret.
        """
        require(actor, Role.ADMIN, "channel.change")
        seen = await self.get(name)
        if seen.version != version:
            raise was_changed("channel", name, seen.version)
        given = {
            "max_retries": max_retries,
            "retry_delay_s": retry_delay_s,
            "retry": retry,
            "rate": rate,
            "receipt_wait_s": receipt_wait_s,
            "receipt_missing": receipt_missing,
        }
        attempts, wait_s = check_fixed(
            seen.max_retries if max_retries is KEEP else max_retries,
            seen.retry_delay_s if retry_delay_s is KEEP else retry_delay_s,
        )
        wanted = replace(
            seen,
            max_retries=attempts,
            retry_delay_s=wait_s,
            is_default=seen.is_default if is_default is KEEP else is_default,
            retry=seen.retry if retry is KEEP else None if retry is None else parse(retry),
            rate=seen.rate if rate is KEEP else check_rate(rate),
            receipt_wait_s=seen.receipt_wait_s if receipt_wait_s is KEEP else check_receipt_wait(receipt_wait_s),
            receipt_missing=(
                seen.receipt_missing if receipt_missing is KEEP else check_receipt_missing(receipt_missing)
            ),
        )
        adapter = adapter_of(self._adapters, seen.type)
        wanted = apply_changes(self._keyring, adapter, wanted, settings, secrets or {})
        check_channel_destination(adapter, seen, wanted)
        # Only changed hosts are looked up: a host name that has disappeared must not block other changes.
        await check_hosts(adapter, {n: v for n, v in wanted.settings.items() if seen.settings.get(n) != v})
        changed = [*settings, *(field for field, value in given.items() if value is not KEEP)]
        extra = {
            "settings": sorted(changed),
            "changes": setting_changes(_plain(seen), _plain(wanted)),
            "secrets": sorted(secrets or {}),
            "is_default": wanted.is_default,
        }
        entry = record(actor, "channel.change", name, self._clock.now(), extra)
        await commit(self._store, f"channel {name!r}", _change, wanted, entry, self._adapters, now=self._store.now())
        self._store.wake.set()
        return replace(wanted, version=version + 1)

    async def remove(self, actor: Actor, name: str) -> None:
        """Remove the channel; Conflict while a list uses it, by name or as the default."""
        entry = self._begin(actor, Role.ADMIN, "channel.remove", name)
        check_name("channel", name)
        await commit(self._store, f"channel {name!r}", _remove, name, entry, self._adapters)

    async def get(self, name: str) -> Channel:
        check_name("channel", name)
        return present(await self._store.read(rows.get_channel, name), "channel", name)

    async def all(self) -> list[Channel]:
        return await self._store.read(rows.all_channels)

    async def test(self, actor: Actor, name: str, to: str) -> Trial:
        """Send a test to one target, even if the breaker is open. Audited before anything is sent."""
        require(actor, Role.ADMIN, "channel.test")
        channel = await self.get(name)
        adapter = adapter_of(self._adapters, channel.type)
        try:
            target = adapter.check_target(to)
        except InvalidInput as error:
            raise InvalidInput(error.code, f"to: {error.message}", hint=error.hint, field="to") from None
        opened = self._keyring.open_owner(channel)
        secrets = await self._secrets_for_test(adapter, channel, target)
        now = self._clock.now()
        await self._store.write(audit.add, [record(actor, "channel.test", name, now, {"to": target})])
        lines: list[str] = []
        envelope = replace(
            self._test_envelope(actor, channel, now),
            targets=(target,),
            settings=opened.settings,
            transcript=lines.append,
            target_secrets=secrets,
        )
        scrub = Scrubber(secrets.values())
        outcome = scrubbed(scrubbed(await deliver_test(adapter, envelope), opened.scrub), scrub)
        log.info("channel.tested", channel=name, actor=actor.name, outcome=outcome.word, error=outcome.error)
        if isinstance(outcome, Delivered):
            await self._store.write(mark_tried, name)
        cost = self.test_cost(actor, channel)
        return Trial(outcome, tuple(scrub(opened.scrub(line)) for line in lines), cost)

    def test_cost(self, actor: Actor, channel: Channel) -> str | None:
        """The cost of a test's text for its target, if the provider bills by its length."""
        require(actor, Role.ADMIN, "channel.test")
        adapter: object = self._adapters.get(channel.type)
        if not isinstance(adapter, TextCosts):
            return None
        return adapter.text_cost(self._test_envelope(actor, channel, self._clock.now()))

    @staticmethod
    def _test_envelope(actor: Actor, channel: Channel, now: datetime) -> Envelope:
        return Envelope(
            notification_id=NotificationId(event_id(now)),
            list_name=channel.name,
            subject=f"Test of channel {channel.name}",
            body=f"{actor.name} tested the channel {channel.name} of Fieldpost. No action is needed.\n",
            targets=(),
            settings=channel.settings,
            dated=now,
            gate=lambda: None,  # a test has no claim to lose
        )

    async def _secrets_for_test(self, adapter: object, channel: Channel, target: str) -> dict[str, Secret]:
        """The secret of a target that is a label, from one of the channel's lists."""
        if not isinstance(adapter, SecretTargets):
            return {}
        for name, sealed in (await self._store.read(_target_secrets, channel.name)).items():
            if target in sealed:
                return self._keyring.open_targets(name, {target: sealed[target]})
        message = f"to: no list of the channel has a target {target!r} with a {adapter.target_secret_name}"
        raise InvalidInput("channel.no_secret", message, hint="add the target with its secret to a list", field="to")

    def types(self) -> dict[str, ChannelType]:
        """The types of channels, by name."""
        return {name: type_of(self._adapters[name]) for name in sorted(self._adapters)}

    def shown_secrets(self, channel: Channel) -> dict[str, str]:
        """For each stored secret, whether this node can read it; never its value."""
        is_readable = self._keyring.problem_of(channel) is None
        return dict.fromkeys(sorted(channel.secrets), "set" if is_readable else "unreadable")

    def warnings(self, channel: Channel) -> list[str]:
        """Settings that are valid but probably a mistake."""
        adapter: object = self._adapters.get(channel.type)
        return adapter.warnings(channel.settings) if isinstance(adapter, SettingsWarner) else []


def _target_secrets(conn: Connection, channel_name: str) -> dict[str, dict[str, str]]:
    return rows.target_secrets(conn, lists_of(rows.directory(conn), channel_name))


def _plain(channel: Channel) -> dict[str, object]:
    """All that is not secret in a channel."""
    return {
        **channel.settings,
        "is_default": channel.is_default,
        "retry": channel.retry and to_text(channel.retry),
        "max_retries": channel.max_retries,
        "retry_delay_s": channel.retry_delay_s,
        "rate": channel.rate and channel.rate.text,
        "receipt_wait_s": channel.receipt_wait_s,
        "receipt_missing": channel.receipt_missing.value,
    }


def _add(
    conn: Connection, added: Channel, entry: AuditEntry, adapters: Mapping[str, Adapter], *, now: datetime | None
) -> None:
    before = rows.directory(conn)
    if added.name in before.channels:
        raise Conflict("channel.exists", f"channel {added.name!r} already exists")
    rows.add_channel(conn, added, entry.occurred_at)
    check_redirected(conn, before, adapters)
    audit.add(conn, [entry])
    release_rerouted(conn, before, now=now)


def _change(
    conn: Connection, wanted: Channel, entry: AuditEntry, adapters: Mapping[str, Adapter], *, now: datetime | None
) -> None:
    before = rows.directory(conn)
    found = present(before.channels.get(wanted.name), "channel", wanted.name)
    if not rows.change_channel(conn, wanted, entry.occurred_at):
        raise was_changed("channel", found.name, found.version)
    check_redirected(conn, before, adapters)
    audit.add(conn, [entry])
    release_rerouted(conn, before, now=now)
    probe_soon(conn, wanted.name, now=now)


def _remove(conn: Connection, name: str, entry: AuditEntry, adapters: Mapping[str, Adapter]) -> None:
    directory = rows.directory(conn)
    users = lists_of(directory, name)
    if users:
        raise Conflict(
            "channel.in_use",
            f"channel {name!r} is used by {', '.join(users[:5])}{' and others' if len(users) > 5 else ''}",
            hint="first move these lists to another channel, or make another channel the default",
        )
    if not rows.remove_channel(conn, name):
        raise not_found("channel", name)
    check_redirected(conn, directory, adapters)
    audit.add(conn, [entry])
