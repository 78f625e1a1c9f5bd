"""Many sites at once: what each wants of the store is done in sets, and each is still judged for itself."""

import asyncio
from collections.abc import Callable
from typing import Any

from fieldpost.central.access.accounts import Accounts
from fieldpost.central.operate.sites import SiteActions
from fieldpost.central.store.sites import health as site_health
from fieldpost.central.store.sites import mirrors, sites
from fieldpost.core.actor import Actor, Role
from fieldpost.core.sites.node import SiteNode
from fieldpost.core.times import to_text
from fieldpost.link.messages import Health, ReconcileAnswer
from fieldpost.testing import ManualClock
from support.centre import Centre

ADMIN = Actor("ada", Role.ADMIN)
COUNT = 60


class Counting:
    """Around a store: how many transactions it is asked for."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._counted(found) if name in ("read", "write") else found

    def _counted(self, transact: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            return transact(*arguments, **named)

        return counted


async def test_tokens_are_looked_up_in_batches_and_judged_separately(centre: Centre) -> None:
    acts = SiteActions(centre.store, centre.clock)
    added = [await acts.add(ADMIN, f"site-{number}") for number in range(COUNT)]
    await acts.revoke(ADMIN, "site-3")
    foreign = added[4].token[:-1] + ("a" if added[4].token[-1] != "a" else "b")
    store = Counting(centre.store)
    accounts = Accounts(store, centre.clock)
    shown = [one.token for one in added] + [foreign, "fp_site_nonsense"]
    found = await asyncio.gather(*map(accounts.by_site_token, shown))
    expected = [SiteNode(one.name) if one.name != "site-3" else None for one in added] + [None, None]
    assert found == expected
    assert store.count <= 3


async def test_revoked_token_is_rejected_by_the_next_lookup(centre: Centre) -> None:
    acts, accounts = SiteActions(centre.store, centre.clock), Accounts(centre.store, centre.clock)
    token = (await acts.add(ADMIN, "plant-7")).token
    assert await accounts.by_site_token(token) == SiteNode("plant-7")
    await acts.revoke(ADMIN, "plant-7")
    assert await accounts.by_site_token(token) is None


async def test_times_of_last_contact_are_written_in_batches(centre: Centre, clock: ManualClock) -> None:
    acts = SiteActions(centre.store, clock)
    for number in range(COUNT):
        await acts.add(ADMIN, f"site-{number}")
    clock.advance(5)
    store = Counting(centre.store)
    noting = SiteActions(store, clock)
    await asyncio.gather(*(noting.saw(f"site-{number}") for number in range(COUNT - 1)))
    seen = {record.name: record.last_seen_at for record in await centre.store.read(sites.all_sites)}
    assert seen == {f"site-{number}": clock.now() if number < COUNT - 1 else None for number in range(COUNT)}
    assert store.count <= 2


async def test_concurrent_health_reports_are_all_stored_and_the_last_one_per_site_wins(
    centre: Centre, clock: ManualClock
) -> None:
    def report(parked: int) -> Health:
        return Health(sent_at=to_text(clock.now()), version="1.0", backlog={}, parked=parked)

    health_reports = centre.ingest.health
    told = [(f"site-{number}", report(number)) for number in range(COUNT)] + [("site-7", report(700))]
    await asyncio.gather(*(health_reports.keep(site, health) for site, health in told))
    kept = await centre.store.read(site_health.load_all)
    assert {site: health.report.parked for site, health in kept.items()} == {
        site: health.parked for site, health in told
    }


async def test_concurrent_reconciliation_answers_move_each_mirror_separately(
    centre: Centre, clock: ManualClock
) -> None:
    def answer(number: int, **more: Any) -> ReconcileAnswer:
        given = {"incarnation": f"file-{number}", "after": 0, "until": number, "high": number, "rows": ()}
        return ReconcileAnswer(sent_at=to_text(clock.now()), **given | more)

    call_mirrors = centre.ingest.mirrors
    asked = await asyncio.gather(*(call_mirrors.question(f"site-{number}") for number in range(COUNT)))
    assert {question.after for question in asked} == {0}
    nexts = await asyncio.gather(
        *(call_mirrors.answer(f"site-{number}", answer(number, has_more=number == 5)) for number in range(COUNT))
    )
    assert [number for number, question in enumerate(nexts) if question is not None] == [5]
    found = await centre.store.read(mirrors.load_all)
    assert {(site, mirror.incarnation, mirror.cursor) for site, mirror in found.items()} == {
        (f"site-{number}", f"file-{number}", number) for number in range(COUNT)
    }
    assert [site for site, mirror in found.items() if mirror.reconciled_at is None] == ["site-5"]
    asked = await asyncio.gather(*(call_mirrors.question(f"site-{number}") for number in range(COUNT)))
    assert [question.after for question in asked] == list(range(COUNT))
