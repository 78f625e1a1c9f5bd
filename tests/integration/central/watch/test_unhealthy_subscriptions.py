"""Subscriptions with problems come first, wherever their names are, and no owner's hide another's."""

from dataclasses import replace
from functools import partial

import pytest

from fieldpost.central.store.events import subscriptions as rows
from fieldpost.central.store.notifications import breakers
from fieldpost.central.watch.events import subscriptions
from fieldpost.central.watch.events.subscriptions import SubscriptionPage, SubscriptionReader
from fieldpost.core.delivery.breaker import BreakerPolicy, record
from fieldpost.core.delivery.outcome import Evidence
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription, SubscriptionState, subscription_key
from fieldpost.testing import ManualClock
from support.centre import Centre
from support.front import ADMIN
from support.hooks import Hooks


@pytest.fixture
def hooks(centre: Centre, clock: ManualClock) -> Hooks:
    return Hooks(centre, clock)


async def add(hooks: Hooks, name: str, owner: str = "shop", *, failures: int = 0) -> Subscription:
    settings = {"url": f"https://{name}.example/in"}
    made = (await hooks.actions.add(ADMIN, name, owner, [FilterEntry()], settings)).subscription
    for _ in range(failures):
        rule = partial(record, evidence=Evidence.FAILS, error="503", policy=BreakerPolicy(3), now=hooks.clock.now())
        await hooks.centre.store.write(breakers.change, subscription_key(made.subscription_id), rule)
    return made


def names(page: SubscriptionPage) -> list[str]:
    return [one.subscription.name for one in page.subscriptions]


async def test_first_page_starts_with_unhealthy_subscriptions(hooks: Hooks) -> None:
    for name in ("a", "b", "c", "d"):
        await add(hooks, name)
    await add(hooks, "x-monitored", failures=1)
    await add(hooks, "y-blocked", failures=3)
    unverified = await add(hooks, "v-unverified")
    waiting = replace(unverified, state=SubscriptionState.UNVERIFIED)
    assert await hooks.centre.store.write(rows.change, waiting, hooks.clock.now())
    disabled = await add(hooks, "w-disabled")
    await hooks.actions.disable(ADMIN, disabled.subscription_id, 1)
    removed = await add(hooks, "z-removed", failures=3)
    await hooks.actions.remove(ADMIN, removed.subscription_id, 1)
    reader = SubscriptionReader(hooks.centre.store)
    problems = ["y-blocked", "x-monitored", "v-unverified", "w-disabled"]
    first = await reader.page(limit=4, are_problems_first=True)
    assert names(first) == [*problems, "a", "b", "c", "d"]
    second = await reader.page(limit=4, cursor=first.next_cursor, are_problems_first=True)
    assert names(second) == sorted(problems), "by name, as without them"
    assert names(await reader.page(limit=2, are_problems_first=True)) == [*problems[:2], "a", "b"]
    disabled_only = [SubscriptionState.DISABLED]
    assert names(await reader.page(states=disabled_only, are_problems_first=True)) == ["w-disabled"]
    assert names(await reader.page(limit=4)) == ["a", "b", "c", "d"], "the API has one order over all pages"


async def test_an_owner_sees_all_its_failing_subscriptions_however_many_others_fail(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "UNHEALTHY_MAX", 3)
    for number in range(4):
        await add(hooks, f"other-{number}", "other", failures=3)
    for name in ("mine-1", "mine-2"):
        await add(hooks, name, "me", failures=1)
    await add(hooks, "healthy", "me")
    reader = SubscriptionReader(hooks.centre.store)
    assert names(await reader.unhealthy("me")) == ["mine-1", "mine-2"]
    assert len(names(await reader.unhealthy())) == 3
    assert names(await reader.page(owner="me", limit=2, are_problems_first=True)) == ["mine-1", "mine-2", "healthy"]
