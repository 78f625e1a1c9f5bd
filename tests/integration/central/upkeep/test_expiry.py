"""Expiry of parked webhook notifications."""

import pytest

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.upkeep.expiry import ParkedExpiry
from fieldpost.central.upkeep.leader import Leader
from fieldpost.core.delivery.outcome import Evidence, PermanentFailure
from fieldpost.testing import ManualClock
from support.centre import Centre
from support.hooks import Hooks

REFUSED = PermanentFailure("422", evidence=Evidence.FAILS)


@pytest.mark.req("WHK-12")
@pytest.mark.dec("DEC-50")
async def test_only_parked_webhooks_past_their_time_are_deleted_with_a_tombstone_and_an_audit_entry(
    centre: Centre, clock: ManualClock
) -> None:
    await centre.add_channel()
    await centre.add_list()
    mail = centre.adapter
    mail.always["ops"] = REFUSED
    parked_mail = await centre.send()
    await centre.deliver()
    hooks = Hooks(centre, clock)
    subscription = await hooks.subscribe()
    hooks.adapter.always["billing"] = REFUSED
    old = await hooks.one(subscription)
    await centre.deliver()
    clock.advance(3 * 24 * 3600)
    young = await hooks.one(subscription)
    await centre.deliver()
    hooks.adapter.always.clear()
    delivered = await hooks.one(subscription)
    await centre.deliver()
    clock.advance(4 * 24 * 3600 + 60)

    leader = Leader(centre.store, "node-1", clock)
    assert await leader.campaign()
    expiry = ParkedExpiry(centre.store, clock, leader, WebhookOptions(expire_parked_at="02:30"))
    assert await expiry.sweep() == 1
    left = {str(i) for (i,) in await centre.rows("select notification_id from notifications")}
    assert left == {parked_mail, young, delivered}
    assert [str(i) for (i,) in await centre.rows("select notification_id from tombstones")] == [old]
    entries = await centre.rows("select actor, target from audit where request_summary = 'webhooks.expire'")
    assert entries == [("system", "webhooks")]
