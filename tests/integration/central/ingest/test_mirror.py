"""What sites report of their cached calls: the mirror follows the site's own buffer, by telemetry and by asking."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from fieldpost.central.ingest.mirror import CallMirrors, MirrorOptions
from fieldpost.central.store.sites import cached_calls
from fieldpost.central.store.sites import mirrors as mirror_rows
from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.sites.call_mirror import CachedCall, Mirror
from fieldpost.link.messages import CallRow, Reconcile, Telemetry
from fieldpost.site.buffer import tracking as site_tracking
from fieldpost.testing import ManualClock
from support.calls import Calls, changes_of
from support.centre import SITE, Centre

OTHER = "north"


@pytest.fixture
def calls(tmp_path: Path, clock: ManualClock) -> Iterator[Calls]:
    opened = Calls(tmp_path / "buffer.db", clock)
    yield opened
    opened.close()


@pytest.fixture
def mirrors(centre: Centre) -> CallMirrors:
    return centre.ingest.mirrors


async def mirrored(centre: Centre, call_id: str, site: str = SITE) -> CachedCall | None:
    return await centre.store.read(cached_calls.get, site, call_id)


async def status_of(centre: Centre, call_id: str, site: str = SITE) -> str | None:
    found = await mirrored(centre, call_id, site)
    return found.report.status.value if found else None


async def mirror_of(centre: Centre, site: str = SITE) -> Mirror:
    found = await centre.store.read(mirror_rows.load, site)
    assert found is not None
    return found


async def reconcile(mirrors: CallMirrors, calls: Calls, site: str = SITE) -> int:
    """Question and answer until central asks no more; how many questions."""
    asked: Reconcile | None = await mirrors.question(site)
    count = 0
    while asked is not None:
        count += 1
        asked = await mirrors.answer(site, calls.answer(asked))
    return count


@pytest.mark.req("TEL-01", "TEL-02", "TRK-12")
async def test_every_transition_reaches_the_mirror_by_telemetry(
    centre: Centre, mirrors: CallMirrors, calls: Calls, clock: ManualClock
) -> None:
    seen, after = set(), 0
    for call_id, status in changes_of(calls):
        told = calls.told(after)
        ack = await mirrors.telemetry(SITE, told)
        after = ack.until
        assert await status_of(centre, call_id) == status
        seen.add(status)
        clock.advance(1)
    assert seen == {"pending", "retrying", "delivered", "parked", "failed", "discarded"}
    assert (await mirror_of(centre)).cursor == calls.tracking.last_change()


@pytest.mark.req("TEL-03", "TEL-04", "TRK-12")
async def test_every_transition_reaches_the_mirror_without_telemetry(
    centre: Centre, mirrors: CallMirrors, calls: Calls, clock: ManualClock
) -> None:
    for call_id, status in changes_of(calls):
        await reconcile(mirrors, calls)
        assert await status_of(centre, call_id) == status
        clock.advance(1)


async def test_mirror_has_every_reported_field_of_a_call(
    centre: Centre, mirrors: CallMirrors, calls: Calls, clock: ManualClock
) -> None:
    one = calls.issue()
    clock.advance(5)
    calls.put_off(one)
    await mirrors.telemetry(SITE, calls.told())
    found, record = await mirrored(centre, one), calls.record(one)
    assert found is not None
    same = ("call_id", "category", "target_summary", "status", "retry_count", "last_error", "http_status")
    same += ("instance", "script", "execution_id", "parent_execution_id", "created_at", "updated_at", "terminal_at")
    assert [getattr(found.report, name) for name in same] == [getattr(record, name) for name in same]
    assert found.report.version == record.version == 2
    assert found.first_seen_at == found.received_at == clock.now()


@pytest.mark.req("TEL-02", "DEC-29", "RES-36")
async def test_repeated_late_or_reordered_reports_change_nothing(
    centre: Centre, mirrors: CallMirrors, calls: Calls
) -> None:
    one = calls.parked()
    parked = calls.told()
    calls.retry(one)
    retrying = calls.told()
    for told in (retrying, parked, retrying, parked):
        await mirrors.telemetry(SITE, told)
        assert await status_of(centre, one) == "retrying"


@pytest.mark.parametrize("is_newest_first", [False, True])
async def test_of_two_reports_of_a_call_in_one_message_the_newer_counts(
    centre: Centre, mirrors: CallMirrors, calls: Calls, is_newest_first: bool
) -> None:
    one = calls.parked()
    parked = calls.told().rows
    calls.retry(one)
    told = calls.told()
    rows = (*told.rows, *parked) if is_newest_first else (*parked, *told.rows)
    await mirrors.telemetry(SITE, msgspec.structs.replace(told, rows=rows))
    assert await status_of(centre, one) == "retrying"


@pytest.mark.req("RES-36")
async def test_a_retry_of_a_parked_call_wins_over_parked(centre: Centre, mirrors: CallMirrors, calls: Calls) -> None:
    one = calls.parked()
    await mirrors.telemetry(SITE, calls.told())
    assert await status_of(centre, one) == "parked"
    calls.retry(one)
    await mirrors.telemetry(SITE, calls.told())
    assert await status_of(centre, one) == "retrying"


@pytest.mark.threat(6)
async def test_site_reports_only_its_own_calls_even_with_ids_of_others(
    centre: Centre, mirrors: CallMirrors, calls: Calls
) -> None:
    one = calls.parked()
    await mirrors.telemetry(SITE, calls.told())
    told = calls.told()
    faked = msgspec.structs.replace(told.rows[0], status="delivered", version=99)
    await mirrors.telemetry(OTHER, msgspec.structs.replace(told, rows=(faked,)))
    assert await status_of(centre, one) == "parked"
    assert await status_of(centre, one, OTHER) == "delivered"


@pytest.mark.threat(6)
async def test_a_site_cannot_bring_back_an_older_state_of_its_call(
    centre: Centre, mirrors: CallMirrors, calls: Calls
) -> None:
    one = calls.issue()
    early = calls.told()
    calls.deliver(one)
    await mirrors.telemetry(SITE, calls.told())
    await mirrors.telemetry(SITE, early)
    assert await status_of(centre, one) == "delivered"


async def test_invalid_row_is_skipped_counted_and_logged_and_its_neighbours_are_stored(
    centre: Centre, mirrors: CallMirrors, calls: Calls
) -> None:
    one = calls.issue()
    told = calls.told()
    good = told.rows[0]
    bad = [
        msgspec.structs.replace(good, call_id="nonsense"),
        msgspec.structs.replace(good, status="sleeping"),
        msgspec.structs.replace(good, category="notification"),
        msgspec.structs.replace(good, version=0),
        msgspec.structs.replace(good, retry_count=-1),
    ]
    await mirrors.telemetry(SITE, msgspec.structs.replace(told, rows=(*bad, good)))
    assert await status_of(centre, one) == "pending"
    mirror = await mirror_of(centre)
    assert mirror.refused_count == len(bad)
    assert mirror.last_refusal is not None
    assert "call.bad_id (1)" in mirror.last_refusal
    assert mirror.cursor == told.until


async def test_text_that_no_database_accepts_is_replaced(centre: Centre, mirrors: CallMirrors) -> None:
    row = CallRow(
        call_id="019a8b3c-0000-7000-8000-000000000001",
        category="external_call",
        target="erp\nPOST\x00" + "x" * 2000,
        status="retrying",
        version=1,
        last_error="no\x00body " + "y" * 10_000,
        http_status=-5,
        script="a\x1bb",
        created_at="yesterday",
    )
    told = Telemetry(incarnation="first", after=0, until=1, sent_at="0001-01-01T00:00:00Z", rows=(row,))
    await mirrors.telemetry(SITE, told)
    found = await mirrored(centre, row.call_id)
    assert found is not None
    assert found.report.target_summary.startswith("erp�POST�")
    assert len(found.report.target_summary.encode()) <= 512
    assert found.report.script == "a�b"
    assert (found.report.http_status, found.report.created_at) == (None, None)


async def test_invalid_message_is_rejected_as_a_whole(mirrors: CallMirrors) -> None:
    row = CallRow(call_id="x", category="external_call", target="erp", status="pending", version=1)
    for told, code in (
        (Telemetry(incarnation="a", after=0, until=1, sent_at="", rows=(row,) * 501), "telemetry.too_many"),
        (Telemetry(incarnation="a", after=2, until=1, sent_at="", rows=()), "telemetry.range"),
        (Telemetry(incarnation="", after=0, until=1, sent_at="", rows=()), "text.empty"),
    ):
        with pytest.raises(InvalidInput) as raised:
            await mirrors.telemetry(SITE, told)
        assert raised.value.code == code


@pytest.mark.req("RES-38", "DEC-29")
async def test_reconciliation_continues_from_its_cursor_in_batches_even_if_many_rows_changed_at_once(
    centre: Centre, calls: Calls
) -> None:
    """The clock stands still, so that all rows have the same time: a cursor of times would stall."""
    mirrors = CallMirrors(centre.store, MirrorOptions(batch_rows=10))
    made = [calls.issue() for _ in range(35)]
    assert await reconcile(mirrors, calls) == 4
    assert [await status_of(centre, one) for one in made] == ["pending"] * 35
    assert (await mirror_of(centre)).reconciled_at is not None
    assert await reconcile(mirrors, calls) == 1
    calls.deliver(made[0])
    assert await reconcile(mirrors, calls) == 1
    assert await status_of(centre, made[0]) == "delivered"


async def test_missed_telemetry_leaves_the_cursor_for_reconciliation(
    centre: Centre, mirrors: CallMirrors, calls: Calls
) -> None:
    first = calls.issue()
    await mirrors.telemetry(SITE, calls.told())
    missed = calls.issue()
    after = calls.tracking.last_change()
    last = calls.issue()
    ack = await mirrors.telemetry(SITE, calls.told(after))
    assert ack.until == after - 1, "telling goes on where central stands"
    assert [await status_of(centre, one) for one in (first, missed, last)] == ["pending", None, None]
    assert await reconcile(mirrors, calls) == 1
    assert [await status_of(centre, one) for one in (missed, last)] == ["pending"] * 2


async def test_replaced_buffer_is_noticed_read_from_its_start_and_shown(
    centre: Centre, mirrors: CallMirrors, calls: Calls, tmp_path: Path, clock: ManualClock
) -> None:
    old, parked = calls.issue(), calls.parked()
    delivered = calls.issue()
    calls.deliver(delivered)
    await reconcile(mirrors, calls)
    new = Calls(tmp_path / "new.db", clock)
    mine = new.issue()
    clock.advance(60)
    assert await reconcile(mirrors, new) == 2
    mirror = await mirror_of(centre)
    assert (mirror.incarnation, mirror.replaced_count) == (new.tracking.incarnation(), 1)
    assert mirror.replaced_at == clock.now()
    assert await status_of(centre, mine) == "pending"
    gone = {one: (await mirrored(centre, one)) for one in (old, parked, delivered, mine)}
    assert [bool(call and call.gone_at) for call in gone.values()] == [True, True, False, False]
    new.close()


async def test_restored_buffer_is_noticed_and_its_present_content_counts(
    centre: Centre, mirrors: CallMirrors, calls: Calls, tmp_path: Path, clock: ManualClock
) -> None:
    one = calls.issue()
    calls.put_off(one)
    calls.close()
    shutil.copyfile(calls.path, tmp_path / "copy.db")
    later = Calls(calls.path, clock)
    later.deliver(one)
    lost = later.issue()
    await reconcile(mirrors, later)
    assert await status_of(centre, one) == "delivered"
    later.close()
    restored = Calls(tmp_path / "copy.db", clock)
    assert await reconcile(mirrors, restored) == 2
    assert await status_of(centre, one) == "retrying"
    found = await mirrored(centre, lost)
    assert found is not None
    assert found.gone_at is not None
    assert (await mirror_of(centre)).replaced_count == 1
    # It goes on from where it stands, and each of its reports counts.
    restored.deliver(one)
    await reconcile(mirrors, restored)
    assert await status_of(centre, one) == "delivered"
    restored.close()


async def test_call_whose_end_was_purged_before_reporting_is_gone_and_not_live_forever(
    centre: Centre, mirrors: CallMirrors, calls: Calls, clock: ManualClock
) -> None:
    one, other = calls.issue(), calls.issue()
    await reconcile(mirrors, calls)
    calls.deliver(one)
    clock.advance(8 * 86400)
    assert calls.buffer.write(lambda c: site_tracking.purge(c, clock.now() - timedelta(days=7))) == 1
    await reconcile(mirrors, calls)
    found, still = await mirrored(centre, one), await mirrored(centre, other)
    assert found is not None
    assert found.gone_at is not None
    assert still is not None
    assert still.gone_at is None
    assert (await mirror_of(centre)).replaced_count == 0
    assert await reconcile(mirrors, calls) == 1


async def test_site_without_progress_is_not_asked_forever(centre: Centre, mirrors: CallMirrors, calls: Calls) -> None:
    calls.issue()
    await reconcile(mirrors, calls)
    stuck = msgspec.structs.replace(calls.answer(await mirrors.question(SITE)), has_more=True)
    assert await mirrors.answer(SITE, stuck) is None


@pytest.mark.req("DEC-04")
async def test_age_of_a_call_is_right_even_if_the_clock_of_its_site_is_wrong(
    centre: Centre, mirrors: CallMirrors, tmp_path: Path, clock: ManualClock
) -> None:
    wrong = ManualClock(clock.now() + timedelta(days=300))
    calls = Calls(tmp_path / "wrong.db", wrong)
    one = calls.issue()
    wrong.advance(600)
    await mirrors.telemetry(SITE, calls.told())
    found = await mirrored(centre, one)
    assert found is not None
    assert found.begun_at == clock.now() - timedelta(seconds=600)
    calls.close()


async def test_mirror_can_be_read_again_on_request(centre: Centre, mirrors: CallMirrors, calls: Calls) -> None:
    one = calls.issue()
    await reconcile(mirrors, calls)
    await mirrors.reread(SITE)
    assert (await mirrors.question(SITE)).after == 0
    await reconcile(mirrors, calls)
    assert await status_of(centre, one) == "pending"
    mirror = await mirror_of(centre)
    assert (mirror.round, mirror.is_rereading, mirror.replaced_count) == (2, False, 0)


@pytest.mark.parametrize("given", [{"batch_rows": 501}, {"batch_rows": 0}, {"reconcile_interval_s": 0}])
def test_setting_out_of_range_is_rejected_by_name(given: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as raised:
        MirrorOptions(**given)
    assert raised.value.field == f"mirror.{next(iter(given))}"
