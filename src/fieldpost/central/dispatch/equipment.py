"""The data of an attempt besides its path: its turn under the rates, pauses and secrets of targets, receipt URLs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fieldpost.central.dispatch.attempt import RunningAttempt
from fieldpost.central.dispatch.paths import Paths
from fieldpost.central.dispatch.rate_limits import NO_WAITS, RateWaits, take_rates
from fieldpost.central.dispatch.receipts import ReceiptKeeper
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.delivery.outcome import Held
from fieldpost.core.secret import Secret


@dataclass(frozen=True, slots=True)
class Equipment:
    """The equipment of a set of attempts; a type without these abilities costs no query."""

    paths: Paths
    waits: RateWaits
    secrets: Mapping[str, Mapping[str, Secret] | Held]
    """By delivery key."""
    receipt_urls: Mapping[str, Mapping[str, str]]
    """By notification."""
    public_url: str

    def give(self, running: RunningAttempt) -> None:
        """Equip an attempt of the set."""
        key, notification_id = running.delivery_key, running.key[0]
        running.rate_wait = self.waits.timed.get(notification_id)
        running.is_queued = notification_id in self.waits.queued
        running.paused = self.paths.pauses_of(key)
        running.target_secrets = self.secrets.get(key)
        running.receipt_urls = self.receipt_urls.get(notification_id, running.receipt_urls)
        running.link = f"{self.public_url}/notifications/{notification_id}" if self.public_url else None


async def equipment_of(
    store: Store,
    paths: Paths,
    receipts: ReceiptKeeper,
    claimed: Sequence[Claimed],
    *,
    has_turn: bool,
) -> Equipment:
    """Fetch it for claimed notifications. With their turn, or as a probe, they take nothing from the rates."""
    waits = NO_WAITS if has_turn else await take_rates(store, claimed, paths)
    keys = [one.notification.delivery_key for one in claimed]
    secrets = await paths.target_secrets(store, keys)
    urls = await receipts.expect([(one, paths.get(key)) for one, key in zip(claimed, keys, strict=True)])
    return Equipment(paths, waits, secrets, urls, receipts.public_url)
