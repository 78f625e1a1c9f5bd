"""Ceilings per site: beyond them a site keeps its notifications, and other sites notice nothing."""

import pytest

from fieldpost.central.ingest.site_ceilings import REMEASURE_S
from fieldpost.central.ingest.submit import Ingest, IngestOptions
from fieldpost.central.store.figures.site_usage import usage_of
from fieldpost.central.watch.watch import Watch
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.errors import ConfigError
from fieldpost.core.sites.usage import SiteCeilings, SiteUsage
from fieldpost.link.messages import Ack, Item, Submit
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre

pytestmark = pytest.mark.threat(2)


def ingest_with(centre: Centre, clock: ManualClock, **options: int) -> Ingest:
    return Ingest(centre.store, clock, IngestOptions(**options))


async def send(ingest: Ingest, *items: Item, site: str = SITE) -> list[str]:
    ack: Ack = await ingest.submit(site, Submit(1, items))
    return [result.verdict for result in ack.results]


async def test_site_at_its_maximum_of_rows_is_deferred_until_some_are_delivered(
    mailing: Centre, clock: ManualClock
) -> None:
    ingest = ingest_with(mailing, clock, site_rows_max=100)
    items = [mailing.item() for _ in range(100)]
    for start in range(0, 100, 20):
        assert set(await send(ingest, *items[start : start + 20])) == {"accepted"}
    more = [mailing.item(), mailing.item()]
    ack = await ingest.submit(SITE, Submit(2, (items[0], *more)))
    assert [result.verdict for result in ack.results] == ["duplicate", "later", "later"]
    put_off = ack.results[1]
    assert (put_off.code, put_off.wait_s) == ("site.full", 30.0)
    assert await send(ingest, mailing.item(), site="plant-8") == ["accepted"], "another site has its own ceiling"
    await mailing.deliver()
    assert await send(ingest, *more) == ["later", "later"], "measured a moment ago"
    clock.advance(REMEASURE_S)
    assert await send(ingest, *more) == ["accepted", "accepted"]


async def test_parked_notifications_count_and_discarded_ones_do_not(mailing: Centre, clock: ManualClock) -> None:
    ingest = ingest_with(mailing, clock, site_rows_max=32)
    mailing.adapter.answer("ops", *[PermanentFailure("550 no", phase="rcpt", reply="550 no")] * 32)
    for _ in range(16):
        await send(ingest, mailing.item(), mailing.item())
    await mailing.deliver()
    assert await mailing.rows("select count(*) from notifications where status = 'parked'") == [(32,)]
    assert await send(ingest, mailing.item()) == ["later"]
    await mailing.execute("update notifications set status = 'discarded' where status = 'parked'")
    clock.advance(REMEASURE_S)
    assert await send(ingest, mailing.item()) == ["accepted"]


async def test_site_at_its_maximum_of_bytes_is_deferred(centre: Centre, clock: ManualClock) -> None:
    ingest = ingest_with(centre, clock, site_bytes_max=1_000_000)
    sent = 0
    while await send(ingest, centre.item(body="ü" * 10_000)) == ["accepted"]:
        sent += 1
    assert 50 <= sent <= 50 * 17 / 16 + 1, "twenty kilobytes each, counted in bytes"
    usage = (await centre.store.read(usage_of, [SITE]))[SITE]
    assert usage.rows == sent
    assert usage.bytes == sent * (20_000 + len("Pump 3 stopped"))


async def test_an_ordinary_site_is_never_measured(
    centre: Centre, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring reads every live row of the site: it may cost that only after a sixteenth of the ceiling."""
    measured: list[object] = []
    read = centre.store.read

    async def counting(work: object, *args: object, **more: object) -> object:
        if work is usage_of:
            measured.append(args)
        return await read(work, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(centre.store, "read", counting)
    ingest = ingest_with(centre, clock, site_rows_max=1_600)
    for _ in range(33):
        assert await send(ingest, *[centre.item() for _ in range(3)]) == ["accepted"] * 3
    assert measured == []
    for _ in range(34):
        await send(ingest, *[centre.item() for _ in range(3)])
    assert len(measured) == 1


async def test_health_warns_of_a_site_from_four_fifths_of_a_ceiling(centre: Centre, clock: ManualClock) -> None:
    async def issues(ceilings: SiteCeilings) -> list[tuple[str, str]]:
        watch = Watch.over(centre.store, clock, ceilings=ceilings)
        found = (await watch.overview.now()).issues
        return [(issue.severity.value, issue.text) for issue in found if issue.code.value == "site.full"]

    await centre.send_many(79, body="x" * 86)
    assert await issues(SiteCeilings(100, 10**9)) == []
    await centre.send_many(1, body="x" * 86)
    [(severity, text)] = await issues(SiteCeilings(100, 10**9))
    assert severity == "warning"
    assert text == f"{SITE} is close to its maximum: 80 undelivered notifications (8.0 kB), 80% of it."
    [(severity, text)] = await issues(SiteCeilings(10**9, 8_000))
    assert severity == "error"
    assert text.startswith(f"{SITE} has reached its maximum: 80 undelivered")


def test_reported_share_is_that_of_the_closest_ceiling() -> None:
    ceilings = SiteCeilings(100, 1_000)
    assert ceilings.share(SiteUsage(50, 100)) == 0.5
    assert ceilings.share(SiteUsage(1, 900)) == 0.9
    assert (SiteCeilings().rows_max, SiteCeilings().bytes_max) == (2_000_000, 4 * 1024**3)


@pytest.mark.parametrize("name", ["site_rows_max", "site_bytes_max", "credits"])
def test_a_ceiling_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=f"ingest.{name} must be at least 1, got 0"):
        IngestOptions(**{name: 0})
