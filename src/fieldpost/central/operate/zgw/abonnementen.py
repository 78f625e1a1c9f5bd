"""Abonnementen of the ZGW API: subscriptions that its clients create and change.

The callback gets a test before anything is stored, so an abonnement is active from the start. The answer of the
callback is not shown to the client, which chose the URL.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from fieldpost.central.access.audit_trail import commit, event_id, present, record
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.operate.list_spec import adapter_of
from fieldpost.central.operate.receiver_test import take_test
from fieldpost.central.operate.subscription_settings import new_signing_secret
from fieldpost.central.operate.subscriptions import SubscriptionActions, add_subscription
from fieldpost.central.operate.trial import deliver_test
from fieldpost.central.operate.zgw.kanalen import actor_of
from fieldpost.central.operate.zgw.options import ZgwOptions
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import subscriptions as rows
from fieldpost.central.store.events import topics as topic_rows
from fieldpost.clock import Clock
from fieldpost.core.audit import SYSTEM
from fieldpost.core.delivery.adapter import Adapter, Envelope
from fieldpost.core.delivery.outcome import Delivered, Outcome
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import Event, RecordedEvent
from fieldpost.core.events.subscription import WEBHOOK_TYPE, Subscription, SubscriptionState, subscription_key
from fieldpost.core.ids import NotificationId, is_id
from fieldpost.core.times import to_text
from fieldpost.core.zgw.abonnement import AbonnementFields, check_kanalen_exist
from fieldpost.core.zgw.client import ZgwClient
from fieldpost.core.zgw.fields import invalid
from fieldpost.core.zgw.notification import TEST_KANAAL

REJECTIONS = ("401", "403")
_AUTH = ("auth", "auth_header", "auth_secret")


class Abonnementen(SubscriptionActions):
    """Actions of ZGW clients on their abonnementen. The scope was checked."""

    def __init__(
        self,
        store: Store,
        adapters: Mapping[str, Adapter],
        clock: Clock,
        keyring: Keyring,
        webhooks: WebhookOptions | None = None,
        options: ZgwOptions | None = None,
    ) -> None:
        super().__init__(store, adapters, clock, keyring, webhooks)
        self._zgw = options or ZgwOptions()

    async def of(self, client: ZgwClient) -> list[Subscription]:
        """The client's abonnementen, oldest first."""
        return await self._store.read(rows.abonnementen, client.client_id)

    async def of_id(self, client: ZgwClient, abonnement_id: str) -> Subscription:
        """One of them; NotFound for another client's."""
        found = await self._store.read(rows.by_abonnement, abonnement_id) if is_id(abonnement_id) else None
        return present(found if found and found.owner == client.client_id else None, "abonnement", abonnement_id)

    async def create(self, client: ZgwClient, given: AbonnementFields, test_url: str) -> Subscription:
        """Add an abonnement once its callback has answered a test. `test_url` is the resource in the test."""
        now = self._clock.now()
        abonnement_id = str(uuid4())
        empty = Subscription(
            subscription_id=event_id(now),
            name=f"abonnement {abonnement_id}",
            owner=client.client_id,
            filter=given.entries or (),
            abonnement_id=abonnement_id,
        )
        wanted = await self._wanted(empty, given, {"secret": new_signing_secret().reveal()})
        await self._confirm(wanted, test_url)
        extra = {"owner": wanted.owner, "subscription_id": wanted.subscription_id}
        entry = record(actor_of(client), "subscription.add", wanted.name, self._clock.now(), extra)
        most = self._options.per_owner_max
        await commit(self._store, f"subscription {wanted.name!r}", add_subscription, wanted, entry, most)
        return wanted

    async def alter(
        self, client: ZgwClient, abonnement_id: str, given: AbonnementFields, test_url: str
    ) -> Subscription:
        """Change the given fields once the callback has answered a test. A new `auth` applies to waiting notifications,
        which are then tried at once. An abonnement that was disabled because its callback failed gets new ones again.
        """
        seen = await self.of_id(client, abonnement_id)
        wanted = await self._wanted(replace(seen, filter=given.entries or seen.filter), given, {})
        await self._confirm(wanted, test_url)
        changed = [name for name in ("callback_url", "auth", "entries") if getattr(given, name) is not None]
        actor = actor_of(client)
        written = await self._write(actor, "subscription.change", wanted, {"fields": changed})
        if written.state is SubscriptionState.DISABLED and written.state_by == SYSTEM:
            written, _ = await self.enable(actor, written.subscription_id, written.version, None)
        return written

    async def drop(self, client: ZgwClient, abonnement_id: str) -> None:
        """Create no more notifications and discard the waiting ones, in batches."""
        seen = await self.of_id(client, abonnement_id)
        actor = actor_of(client)
        await self._move(actor, "remove", seen.subscription_id, seen.version, SubscriptionState.REMOVED, None)

    async def _wanted(self, base: Subscription, given: AbonnementFields, secrets: Mapping[str, object]) -> Subscription:
        found = await self._store.read(topic_rows.all_topics)
        kanalen = {one.name: one for one in found if one.kanaal_id is not None and one.archived_at is None}
        check_kanalen_exist(given.entries or (), kanalen)
        settings: dict[str, object] = {"format": "raw", "auth": "header", "auth_header": "Authorization"}
        if given.callback_url is not None:
            settings["url"] = given.callback_url
        if given.auth is not None:
            secrets = {**secrets, "auth_secret": given.auth}
        try:
            wanted = self._apply(base, settings, secrets)
            await self._check_hosts({"url": wanted.url})
        except InvalidInput as error:
            if error.field in ("auth_secret", "secrets.auth_secret"):
                raise invalid("auth", "invalid", "must be up to 4,096 printable ASCII characters on one line") from None
            raise invalid("callbackUrl", "invalid-callback-url", error.message) from None
        return wanted

    async def _confirm(self, wanted: Subscription, test_url: str) -> None:
        await self._store.write(take_test, wanted.owner, now=self._store.now())
        opened = self._keyring.open_owner(wanted)
        outcome = await self._send(wanted, opened.settings, test_url)
        if not isinstance(outcome, Delivered):
            raise invalid(
                "callbackUrl", "invalid-callback-url", "the callback did not answer a test notification with 2xx"
            )
        if self._zgw.require_rejection:
            bare = {name: value for name, value in opened.settings.items() if name not in _AUTH}
            if (await self._send(wanted, bare, test_url)).reply not in REJECTIONS:
                raise invalid(
                    "callbackUrl",
                    "no-auth-on-callback-url",
                    "the callback must answer a test notification without `auth` with 401 or 403",
                )

    async def _send(self, wanted: Subscription, settings: Mapping[str, object], test_url: str) -> Outcome:
        now = self._clock.now()
        id_ = event_id(now)
        envelope = Envelope(
            notification_id=NotificationId(id_),
            list_name=wanted.name,
            subject="",
            body="",
            targets=(subscription_key(wanted.subscription_id),),
            settings={**settings, "quick_tries": 0},
            dated=now,
            gate=lambda: None,  # a test has no claim to lose
            event=RecordedEvent(_test_event(id_, test_url, now), now, 1),
        )
        return await deliver_test(adapter_of(self._adapters, WEBHOOK_TYPE), envelope)


def _test_event(id_: str, url: str, now: datetime) -> Event:
    fields = {
        "kanaal": TEST_KANAAL,
        "hoofdObject": url,
        "resource": TEST_KANAAL,
        "resourceUrl": url,
        "actie": TEST_KANAAL,
        "aanmaakdatum": to_text(now),
        "kenmerken": {},
    }
    return Event(event_id=id_, topic=TEST_KANAAL, source="fieldpost", payload=json.dumps(fields))
