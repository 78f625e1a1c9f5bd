"""The clock of an embedded central is set while many rows wait for their next attempt."""

from collections import Counter

import pytest

from fieldpost.central.upkeep.clock_watch import ClockWatch
from fieldpost.core.delivery.outcome import TransientFailure
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import open_centre

LISTS = [f"list-{number}" for number in range(5)]
SLOTS = 16


@pytest.mark.fault(26)
@pytest.mark.req("DEC-04")
async def test_clock_jump_during_backoff_causes_neither_a_burst_nor_a_loss(sqlite_url: str, clock: ManualClock) -> None:
    async with open_centre(sqlite_url, clock) as centre:
        await centre.add_channel(max_retries=10, retry_delay_s=60.0)
        sent = []
        for name in LISTS:
            await centre.add_list(name)
            centre.adapter.always[name] = TransientFailure("451 4.2.1 busy")
            sent += await centre.send_many(60, name)
        node = centre.dispatcher(slots=SLOTS)
        watch = ClockWatch(centre.store, clock)

        async def attempts() -> Counter[int]:
            """How many attempts each notification has seen by now, after a few more sweeps."""
            for _ in range(3):
                await centre.deliver(node)
            return Counter(Counter(centre.adapter.sent()).values())

        async with node.running():
            assert await attempts() == {1: 300}
            clock.step(3600)
            await watch.sweep()
            assert await attempts() == {2: 300}, "due by now, each once; then the delay holds again"
            clock.step(-86_400)
            await watch.sweep()
            assert await attempts() == {2: 300}, "not due yet"
            for name in LISTS:
                centre.adapter.always.pop(name)
            clock.advance(60)
            assert await attempts() == {3: 300}
        assert centre.adapter.running_max <= SLOTS
        for i in sent:
            n = await centre.get(i)
            assert (n.status, n.retry_count) == (Status.DELIVERED, 2)
