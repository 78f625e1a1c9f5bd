"""Subscriptions: add, change, rotate, pause, resume, disable, remove, read. Secrets are write-only."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog
from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import (
    KEEP,
    Actions,
    Keep,
    commit,
    event_id,
    not_found,
    present,
    record,
    require,
    was_changed,
)
from fieldpost.central.access.ownership import own_name
from fieldpost.central.adapters.webhook.description import PHASES, SUBSCRIPTION_FIELDS
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.operate.channel_settings import check_hosts, setting_changes
from fieldpost.central.operate.list_spec import adapter_of
from fieldpost.central.operate.receiver_test import check_rejection, send_test, take_test
from fieldpost.central.operate.recovery import Recovery
from fieldpost.central.operate.subscription_settings import (
    apply_settings,
    check_receiver_destination,
    new_signing_secret,
    rotate_secret,
    with_abonnement_id,
)
from fieldpost.central.operate.trial import Trial, TrialStep, trial_steps
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import notices
from fieldpost.central.store.events import subscriptions as rows
from fieldpost.central.store.events import topics as topic_rows
from fieldpost.central.store.notifications import audit, live_rows
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.bulk import BulkAction
from fieldpost.core.delivery.adapter import Adapter, Described, SettingField
from fieldpost.core.delivery.breaker import Breaker, note_tried, probe_now
from fieldpost.core.delivery.outcome import Delivered
from fieldpost.core.delivery.retry import parse
from fieldpost.core.errors import Conflict
from fieldpost.core.events.audience import check_readable
from fieldpost.core.events.filter import FilterEntry, check_filter
from fieldpost.core.events.notice import DISABLED, Notice
from fieldpost.core.events.signature import check_signing_secret
from fieldpost.core.events.subscription import (
    WEBHOOK_TYPE,
    Subscription,
    SubscriptionState,
    awaiting_test,
    in_state,
    passed_test,
    subscription_key,
)
from fieldpost.core.ids import is_id
from fieldpost.core.secret import Secret
from fieldpost.core.text import check_label, check_list_name

PAGE_MAX = 500

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SecretShown:
    """A subscription with its new signing secret, which is shown only once. None if the caller gave the secret."""

    subscription: Subscription
    secret: Secret | None


class SubscriptionActions(Actions):
    """Actions on subscriptions."""

    def __init__(
        self,
        store: Store,
        adapters: Mapping[str, Adapter],
        clock: Clock,
        keyring: Keyring | None = None,
        options: WebhookOptions | None = None,
    ) -> None:
        super().__init__(store, clock)
        self._adapters = adapters
        self._keyring = keyring or Keyring()
        self._options = options or WebhookOptions()

    async def add(
        self,
        actor: Actor,
        name: str,
        owner: str | None,
        filter: Sequence[FilterEntry],
        settings: Mapping[str, object],
        secrets: Mapping[str, object] | None = None,
        *,
        retry: str | None = None,
    ) -> SecretShown:
        """Add a subscription. Without a signing secret, one is generated and returned.

        A subscriber adds it for its own owner; it stays unverified until its receiver answers a signed test.
        """
        require(actor, Role.ADMIN, "subscription.add", Role.SUBSCRIBER)
        now = self._clock.now()
        empty = Subscription(
            subscription_id=event_id(now),
            name=check_list_name(check_label(name, "name")),
            owner=check_label(own_name(actor, owner) or "", "owner"),
            filter=check_filter(filter),
            is_restricted=actor.role is Role.SUBSCRIBER,
            retry=None if retry is None else parse(retry),
        )
        given = dict(secrets or {})
        made = None if given.get("secret") else new_signing_secret()
        if made is not None:
            given["secret"] = made.reveal()
        added = self._apply(with_abonnement_id(empty), settings, given)
        if actor.role is Role.SUBSCRIBER:
            await self._check_readable(added)
            added = awaiting_test(added, by=actor.name, now=now)
        await self._check_hosts(added.settings)
        extra = {"owner": added.owner, "settings": sorted(settings), "secrets": sorted(secrets or {})}
        entry = record(actor, "subscription.add", name, now, {**extra, "subscription_id": added.subscription_id})
        most = self._options.per_owner_max if actor.role is Role.SUBSCRIBER else None
        await commit(self._store, f"subscription {name!r}", add_subscription, added, entry, most)
        return SecretShown(added, made)

    async def change(
        self,
        actor: Actor,
        subscription_id: str,
        version: int,
        *,
        name: str | Keep = KEEP,
        filter: Sequence[FilterEntry] | Keep = KEEP,
        settings: Mapping[str, object] | None = None,
        secrets: Mapping[str, object] | None = None,
        retry: str | Keep | None = KEEP,
    ) -> Subscription:
        """Replace the given fields if the subscription is still at `version`. Waiting notifications use the new values.

        None resets a setting to its default and clears a secret; an empty text keeps the secret. The auth secret must
        be given again if it would be sent to another host. After a subscriber changed the URL, the receiver must answer
        a signed test; after one changed the filter, it matches only topics that the owner may read.
        """
        require(actor, Role.ADMIN, "subscription.change", Role.SUBSCRIBER)
        seen = await self._seen(actor, subscription_id, version)
        wanted = replace(
            seen,
            name=seen.name if name is KEEP else check_list_name(check_label(name, "name")),
            filter=seen.filter if filter is KEEP else check_filter(filter),
            retry=seen.retry if retry is KEEP else None if retry is None else parse(retry),
        )
        wanted = self._apply(with_abonnement_id(wanted), settings or {}, secrets or {})
        check_receiver_destination(seen, wanted)
        if actor.role is Role.SUBSCRIBER:
            if wanted.filter != seen.filter:
                wanted = replace(wanted, is_restricted=True)
                await self._check_readable(wanted)
            if wanted.url != seen.url:
                wanted = awaiting_test(wanted, by=actor.name, now=self._clock.now())
        # Only changed hosts are looked up: a host name that has disappeared must not block other changes.
        await self._check_hosts({n: v for n, v in wanted.settings.items() if seen.settings.get(n) != v})
        fields = [field for field in ("name", "filter", "retry") if getattr(wanted, field) != getattr(seen, field)]
        extra = {
            "fields": fields,
            "settings": sorted(settings or {}),
            "changes": setting_changes(seen.settings, wanted.settings),
            "secrets": sorted(secrets or {}),
        }
        return await self._write(actor, "subscription.change", wanted, extra)

    async def rotate(self, actor: Actor, subscription_id: str, version: int, secret: str | None = None) -> SecretShown:
        """Replace the signing secret. For 24 hours requests are signed with the former one too."""
        require(actor, Role.ADMIN, "subscription.rotate", Role.SUBSCRIBER)
        seen = await self._seen(actor, subscription_id, version)
        new = new_signing_secret() if secret is None else check_signing_secret(secret)
        wanted = rotate_secret(self._keyring, seen, new, self._clock.now())
        changed = await self._write(actor, "subscription.rotate", wanted, {})
        return SecretShown(changed, new if secret is None else None)

    async def test(self, actor: Actor, subscription_id: str) -> Trial:
        """Send a signed test event to the receiver, even if it is paused or blocked. Audited before it is sent.

        A subscription that waits for a test becomes active if the receiver answers with 2xx and, with `[webhooks]
        require_rejection`, rejects the same request without credentials.
        """
        require(actor, Role.ADMIN, "subscription.test", Role.SUBSCRIBER)
        seen = await self._seen(actor, subscription_id)
        adapter = adapter_of(self._adapters, WEBHOOK_TYPE)
        opened = self._keyring.open_owner(seen)
        if actor.role is Role.SUBSCRIBER:
            await self._store.write(take_test, seen.owner, now=self._store.now())
        now = self._clock.now()
        noted = {"subscription_id": subscription_id}
        await self._store.write(audit.add, [record(actor, "subscription.test", seen.name, now, noted)])
        tested = await send_test(adapter, seen, opened, event_id(now), actor.name, now)
        is_waiting = not seen.is_verified or seen.state is SubscriptionState.UNVERIFIED
        if is_waiting and isinstance(tested.outcome, Delivered) and self._options.require_rejection:
            tested = await check_rejection(adapter, seen, opened, event_id(now), actor.name, tested, now)
        log.info("subscription.tested", subscription=seen.name, actor=actor.name, outcome=tested.outcome.word)
        if isinstance(tested.outcome, Delivered):
            await self._store.write(breaker_rows.change, subscription_key(subscription_id), note_tried)
        if is_waiting and isinstance(tested.outcome, Delivered):
            await self._write(actor, "subscription.verify", passed_test(seen, by=actor.name, now=now), {})
        return tested

    async def pause(self, actor: Actor, subscription_id: str, version: int, reason: str | None = None) -> Subscription:
        """Hold its notifications, the new ones too, until it is resumed."""
        return await self._move(actor, "pause", subscription_id, version, SubscriptionState.PAUSED, reason)

    async def resume(self, actor: Actor, subscription_id: str, version: int) -> Subscription:
        """End a pause; held notifications are released in batches."""
        require(actor, Role.ADMIN, "subscription.resume", Role.SUBSCRIBER)
        seen = await self._seen(actor, subscription_id, version)
        if seen.state is not SubscriptionState.PAUSED:
            raise Conflict("subscription.state", f"only a paused subscription can be resumed; it is {seen.state.value}")
        return await self._move(actor, "resume", subscription_id, version, SubscriptionState.ACTIVE, None)

    async def disable(
        self, actor: Actor, subscription_id: str, version: int, reason: str | None = None
    ) -> Subscription:
        """Create no more notifications and park the waiting ones, in batches."""
        return await self._move(actor, "disable", subscription_id, version, SubscriptionState.DISABLED, reason)

    async def enable(
        self, actor: Actor, subscription_id: str, version: int, resume_from: datetime | None
    ) -> tuple[Subscription, BulkAction | None]:
        """Let a disabled subscription get notifications again, and recover it since `resume_from`; None for new events
        only. Its outage is forgotten."""
        require(actor, Role.ADMIN, "subscription.enable", Role.SUBSCRIBER)
        seen = await self._seen(actor, subscription_id, version)
        if seen.state is not SubscriptionState.DISABLED:
            raise Conflict(
                "subscription.state", f"only a disabled subscription can be enabled; it is {seen.state.value}"
            )
        enabled = await self._move(actor, "enable", subscription_id, version, SubscriptionState.ACTIVE, None)
        key = subscription_key(subscription_id)
        await self._store.write(breaker_rows.change, key, lambda b: Breaker(key=key, version=b.version))
        if resume_from is None:
            return enabled, None
        recovery = Recovery(self._store, self._clock)
        return enabled, await recovery.start(actor, subscription_id, resume_from, "enabled again")

    async def remove(self, actor: Actor, subscription_id: str, version: int, reason: str | None = None) -> Subscription:
        """Create no more notifications and discard the waiting ones, in batches. The record stays for history."""
        return await self._move(actor, "remove", subscription_id, version, SubscriptionState.REMOVED, reason)

    async def get(self, subscription_id: str, owner: str | None = None) -> Subscription:
        """The subscription; NotFound if it is of another owner than the given one."""
        found = await self._store.read(rows.get, subscription_id) if is_id(subscription_id) else None
        if found is not None and owner is not None and found.owner != owner:
            found = None
        return present(found, "subscription", subscription_id)

    async def find(
        self,
        *,
        owner: str | None = None,
        states: Collection[SubscriptionState] = (),
        after: tuple[str, str] | None = None,
        limit: int = PAGE_MAX,
    ) -> list[Subscription]:
        """Subscriptions by name, all but removed ones unless states are given."""
        return await self._store.read(rows.find, owner=owner, states=states, after=after, limit=min(limit, PAGE_MAX))

    def steps(self, subscription: Subscription, tested: Trial) -> list[TrialStep]:
        """How far a test came, phase by phase."""
        adapter: object = self._adapters.get(WEBHOOK_TYPE)
        phases = adapter.phases if isinstance(adapter, Described) else PHASES
        return trial_steps(phases, subscription.settings, tested.outcome)

    @property
    def fields(self) -> tuple[SettingField, ...]:
        """The settings and secrets of a subscription as form fields."""
        return SUBSCRIPTION_FIELDS

    def shown_secrets(self, subscription: Subscription) -> dict[str, str]:
        """For each stored secret, whether this node can read it; never its value."""
        is_readable = self._keyring.problem_of(subscription) is None
        return dict.fromkeys(sorted(subscription.secrets), "set" if is_readable else "unreadable")

    def _apply(self, base: Subscription, settings: Mapping[str, object], secrets: Mapping[str, object]) -> Subscription:
        return apply_settings(self._keyring, base, settings, secrets, is_plain_allowed=self._options.allow_plain)

    async def _check_readable(self, wanted: Subscription) -> None:
        check_readable(wanted.filter, wanted.owner, await self._store.read(topic_rows.all_topics))

    async def _check_hosts(self, settings: Mapping[str, object]) -> None:
        await check_hosts(self._adapters.get(WEBHOOK_TYPE), settings)

    async def _seen(self, actor: Actor, subscription_id: str, version: int | None = None) -> Subscription:
        seen = await self.get(subscription_id, actor.owner_limit)
        if seen.state is SubscriptionState.REMOVED:
            raise Conflict("subscription.removed", f"subscription {seen.name!r} is removed", hint="create it again")
        if version is not None and seen.version != version:
            raise was_changed("subscription", seen.name, seen.version)
        return seen

    async def _move(
        self,
        actor: Actor,
        verb: str,
        subscription_id: str,
        version: int,
        state: SubscriptionState,
        reason: str | None,
    ) -> Subscription:
        require(actor, Role.ADMIN, f"subscription.{verb}", Role.SUBSCRIBER)
        seen = await self._seen(actor, subscription_id, version)
        if reason is not None:
            check_label(reason, "reason")
        wanted = in_state(seen, state, by=actor.name, reason=reason, now=self._clock.now())
        return await self._write(actor, f"subscription.{verb}", wanted, {"reason": reason} if reason else {})

    async def _write(
        self, actor: Actor, action: str, wanted: Subscription, extra: Mapping[str, object]
    ) -> Subscription:
        noted = {"subscription_id": wanted.subscription_id, **extra}
        entry = record(actor, action, wanted.name, self._clock.now(), noted)
        await commit(self._store, f"subscription {wanted.name!r}", _change, wanted, entry, now=self._store.now())
        self._store.wake.set()
        return replace(wanted, version=wanted.version + 1)


def add_subscription(conn: Connection, added: Subscription, entry: AuditEntry, most: int | None) -> None:
    # Each matching event becomes a row for each of them, also while they are unverified.
    if most is not None and rows.count_of(conn, added.owner) >= most:
        raise Conflict(
            "subscription.many",
            f"{added.owner!r} has the maximum number of subscriptions, {most}",
            hint="remove one, or ask an administrator to add it",
        )
    _require_free_name(conn, added)
    rows.add(conn, added, entry.occurred_at)
    audit.add(conn, [entry])


def _change(conn: Connection, wanted: Subscription, entry: AuditEntry, *, now: datetime | None) -> None:
    _require_free_name(conn, wanted)
    before = rows.get(conn, wanted.subscription_id)
    found_auth = before.secrets.get("auth_secret") if before else None
    if not rows.change(conn, wanted, entry.occurred_at):
        found = rows.get(conn, wanted.subscription_id)
        if found is None:
            raise not_found("subscription", wanted.subscription_id)
        raise was_changed("subscription", found.name, found.version)
    audit.add(conn, [entry])
    key, at = subscription_key(wanted.subscription_id), database_time(conn, now)
    if wanted.state is SubscriptionState.DISABLED and before is not None and before.state is not wanted.state:
        data = {"reason": wanted.state_reason, "by": wanted.state_by}
        notices.add(conn, [Notice(DISABLED, wanted.subscription_id, data)], at)
    # The receiver may work again with the new values.
    if key in breaker_rows.load(conn, [key]):
        breaker_rows.change(conn, key, lambda breaker: probe_now(breaker, at))
    if found_auth != wanted.secrets.get("auth_secret"):
        live_rows.hurry(conn, key, now=now)


def _require_free_name(conn: Connection, wanted: Subscription) -> None:
    found = rows.named(conn, wanted.owner, wanted.name)
    if found is not None and found.subscription_id != wanted.subscription_id:
        raise Conflict("subscription.exists", f"{wanted.owner} already has a subscription named {wanted.name!r}")
