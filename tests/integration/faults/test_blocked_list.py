"""One list is blocked and has two hundred thousand rows waiting: nobody else notices."""

import asyncio
import random
from collections import Counter

import pytest

from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.core.delivery.breaker import BreakerState
from fieldpost.core.delivery.outcome import Held
from support.centre import Centre, Hanging, open_centre
from support.plans import MeasuredStore, fill

BLOCKED_ROWS = 200_000
OTHERS = [f"other-{number:02}" for number in range(20)]
OTHER_ROWS = 1_000
SHARE = DispatchOptions().slots_per_key
ALONE = DispatchOptions().slots * 3 // 4
FAILURES_MAX = DispatchOptions().breaker_failures_max
READS_MAX = {"postgresql": 6_000, "sqlite": 400}
"""Far below what looking at each of the blocked rows would take: 200,000 rows, or 1,400 thousand steps."""


@pytest.mark.req("DSP-06", "DEC-08", "DEC-09")
@pytest.mark.parametrize("how", ["saturated", "behind an open breaker"])
async def test_blocked_list_does_not_slow_first_attempts_of_others(store_url: str, how: str) -> None:
    async with open_centre(store_url) as centre:
        await centre.add_channel()
        await centre.add_channel("down", default=False)
        await centre.add_list("blocked", channel_name="down")
        for name in OTHERS:
            await centre.add_list(name)
        without = await first_attempts(centre)
        await centre.store.write(fill, "blocked", BLOCKED_ROWS)
        saturated = Hanging()
        centre.adapter.always["blocked"] = saturated if how == "saturated" else Held("no connection", phase="connect")
        with_them = await first_attempts(centre)
        names = [envelope.list_name for envelope in centre.adapter.envelopes]
        while_others_waited = names[
            : len(names) - next(n for n, name in enumerate(reversed(names)) if name != "blocked")
        ]
        if how == "saturated":
            assert while_others_waited.count("blocked") == SHARE, "its share, for as long as another list has due rows"
            assert names.count("blocked") <= ALONE, "three quarters of the slots, once nothing else is due"
        else:
            assert (await centre.breaker("down")).state is BreakerState.OPEN
            assert names.count("blocked") < SHARE + FAILURES_MAX, (
                "its share, and one more for each failure until it opens"
            )
    reads_max = READS_MAX["postgresql" if centre.is_postgresql else "sqlite"]
    assert with_them.calls["_park_old"] <= 1, "once a minute"
    assert {name: reads for name, reads in with_them.reads_max.items() if reads > reads_max} == {}
    # Eight slots are the blocked list's own; with the rest the others need a few more rounds, and nothing else.
    rounds = claims_of(with_them) / claims_of(without)
    assert rounds < 2, f"{with_them.calls} instead of {without.calls}"
    assert with_them.calls["hold_rows"] <= 3, "the others do not wait until all is held"


def claims_of(measured: MeasuredStore) -> int:
    return measured.calls["claim_share"] + measured.calls["claim_order"]


async def first_attempts(centre: Centre) -> MeasuredStore:
    """A fresh node makes the first attempts of a thousand rows of the other lists; what that took."""
    for name in OTHERS:
        await centre.store.write(fill, name, OTHER_ROWS // len(OTHERS))
    before = len(centre.adapter.envelopes)
    measured = MeasuredStore(centre.store)
    options = DispatchOptions(grace_s=0.05)
    node = Dispatcher(measured, centre.adapters, f"node-{before}", centre.clock, random.Random(7), options)
    async with asyncio.timeout(60), node.running():
        while len(sent := [e for e in centre.adapter.envelopes[before:] if e.list_name != "blocked"]) < OTHER_ROWS:
            await node.sweep()
            await asyncio.sleep(0)
    assert set(Counter(envelope.notification_id for envelope in sent).values()) == {1}
    return measured
