"""How far a buffer may grow: by its budget, and to the end of the disk."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldpost import Site
from fieldpost.core.errors import FieldpostError, Unavailable
from fieldpost.core.sites.forwarding import Clear, TryAgain
from fieldpost.core.sites.message import CallStatus, Category
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.reserve import RESERVE_FILE, SPENT_FILE, Reserve
from fieldpost.site.config.options import BufferOptions
from fieldpost.site.upkeep import BufferUpkeep
from fieldpost.testing import ManualClock
from support.disks import enlarge, fill_up, small_disk
from support.plant import running_plant
from support.site_folders import make_site
from support.site_writers import add, ids_in

KIB, MIB = 1024, 1024 * 1024


def fill(buffer: Buffer, payload_bytes: int) -> tuple[list[str], Unavailable]:
    """Add until it is refused: the ids that were taken, and the refusal."""
    accepted = []
    while True:
        try:
            accepted.append(add(buffer, "x" * payload_bytes))
        except Unavailable as error:
            return accepted, error


def drain(buffer: Buffer, clock: ManualClock, items_max: int = 100) -> list[str]:
    """Clear all waiting messages, batch by batch, as the forwarder does; the ids in their order."""
    cleared: list[str] = []
    while taken := buffer.take(clock.now(), items_max=items_max, bytes_max=MIB):
        buffer.settle([(message.message_id, Clear()) for message in taken], clock.now())
        cleared += [message.message_id for message in taken]
    return cleared


def leave(disk: Path, free_bytes: int) -> None:
    """Another program takes all free space except this much."""
    free = shutil.disk_usage(disk).free
    with (disk / "filler").open("ab") as file:
        file.write(bytes(max(0, free - free_bytes)))


@pytest.mark.req("SF-16")
def test_buffer_without_a_budget_is_limited_by_the_disk_only(tmp_path: Path) -> None:
    assert BufferOptions().bytes_max == 0
    buffer = Buffer(tmp_path / "buffer.db")
    for _ in range(40):
        add(buffer, "x" * 256 * KIB)
    assert buffer.depth().waiting == {Category.NOTIFICATION: 40}
    buffer.close()


def test_buffer_beyond_its_budget_rejects_new_messages_and_drops_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    buffer = Buffer(tmp_path / "buffer.db", BufferOptions(bytes_max=2 * MIB))
    accepted, error = fill(buffer, 10 * KIB)
    assert error.code == "buffer.over_budget"
    assert "bytes_max" in error.message
    assert 150 <= len(accepted) <= 205
    taken = buffer.take(clock.now(), items_max=50, bytes_max=MIB)
    assert [message.message_id for message in taken] == accepted[: len(taken)]
    again = [(message.message_id, TryAgain(clock.now(), "busy")) for message in taken]
    buffer.settle(again, clock.now())
    buffer.settle([(message.message_id, Clear()) for message in taken], clock.now())
    more, _ = fill(buffer, 10 * KIB)
    assert abs(len(more) - len(taken)) <= 3, "what has left makes room for as much"
    assert drain(buffer, clock) == accepted[len(taken) :] + more
    buffer.close()


def test_the_budget_holds_for_calls_too_and_their_outcomes_are_always_written(tmp_path: Path) -> None:
    with running_plant(tmp_path / "plant") as plant:
        with (plant.folder / "site.toml").open("a") as settings:
            settings.write(f"\n[buffer]\nbytes_max = {MIB}\n")
        site = plant.open()
        kept = site.external("dead").call("POST", "/orders", body="x" * 1000)
        fill(site._buffer, 10 * KIB)
        count = len(site.tracking.changed_since(0, 10_000))
        with pytest.raises(Unavailable) as caught:
            site.external("erp").call("POST", "/orders")
        assert caught.value.code == "buffer.over_budget"
        assert len(site.tracking.changed_since(0, 10_000)) == count
        assert not plant.server.requests
        plant.sweep_later()
        assert plant.record(kept).retry_count == 1
        site.close()


@pytest.mark.fault(6)
@pytest.mark.parametrize("payload_bytes", [300, 10 * KIB], ids=["small", "large"])
def test_full_disk_still_drains_and_rejects_new_messages_until_there_is_room(
    tmp_path: Path, payload_bytes: int
) -> None:
    clock = ManualClock()
    with small_disk(tmp_path / "disk", 4) as disk:
        buffer = Buffer(disk / "buffer.db")
        assert buffer.reserve.keep()
        accepted, error = fill(buffer, payload_bytes)
        assert error.code == "buffer.full"
        assert len(accepted) * payload_bytes > 0.5 * MIB
        buffer.close()
        fill_up(disk)
        buffer = Buffer(disk / "buffer.db")
        taken = buffer.take(clock.now(), items_max=100, bytes_max=MIB)
        buffer.settle([(message.message_id, Clear()) for message in taken], clock.now())
        assert (disk / SPENT_FILE).stat().st_size == 0, "the reserve was given up"
        leave(disk, 512 * KIB)
        with pytest.raises(Unavailable) as refused:
            add(buffer, "x" * payload_bytes)
        assert refused.value.code == "buffer.full"
        assert [m.message_id for m in taken] + drain(buffer, clock) == accepted
        buffer.close()
        assert ids_in(disk / "buffer.db") == set()
        buffer = Buffer(disk / "buffer.db")
        (disk / "filler").unlink()
        new = add(buffer, "x" * payload_bytes)
        assert (disk / RESERVE_FILE).stat().st_size > 0, "and is kept again"
        assert drain(buffer, clock) == [new]
        buffer.close()


@pytest.mark.fault(6)
def test_full_disk_allows_settling_calls_and_actions_of_operators(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk, running_plant(disk / "plant") as plant:
        parked = plant.site.external("dead").call("POST", "/orders", body="x" * 10 * KIB)
        retried = plant.site.external("erp").call("POST", "/orders")
        plant.server.on().answer(503).times(1)
        waiting = plant.site.external("erp").call("POST", "/orders")
        assert plant.record(retried).is_delivered
        assert plant.site._buffer.reserve.keep()
        fill(plant.site._buffer, 10 * KIB)
        plant.site.close()
        fill_up(disk)
        plant.site = plant.open()
        for _ in range(3):
            plant.sweep_later()
        assert plant.record(waiting).is_delivered
        assert plant.record(parked).status is CallStatus.PARKED
        assert plant.site._buffer.discard(parked, plant.clock.now())
        leave(disk, 512 * KIB)
        with pytest.raises(FieldpostError) as caught:
            plant.site.external("erp").call("POST", "/orders")
        assert caught.value.code == "buffer.full"
        assert len(plant.server.requests) == 3, "what is not on disk is not called"


def fill_and_drain(disk: Path) -> tuple[Buffer, int]:
    """A buffer that filled the disk and was drained in small batches, still open; how many messages it took."""
    buffer = Buffer(disk / "buffer.db")
    accepted, _ = fill(buffer, 10 * KIB)
    assert drain(buffer, ManualClock(), items_max=10) == accepted
    return buffer, len(accepted)


@pytest.mark.fault(6)
@pytest.mark.parametrize("mebibytes", range(20, 68, 4))
def test_drained_buffer_accepts_as_much_as_before_its_disk_was_full(tmp_path: Path, mebibytes: int) -> None:
    with small_disk(tmp_path / "disk", mebibytes) as disk:
        buffer, count = fill_and_drain(disk)
        again, _ = fill(buffer, 10 * KIB)
        assert len(again) >= 0.9 * count
        assert drain(buffer, ManualClock(), items_max=10) == again
        assert buffer.keep_reserve()
        buffer.close()


@pytest.mark.fault(6)
def test_free_pages_of_the_buffer_count_as_space_for_new_messages(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 48) as disk:
        buffer, _ = fill_and_drain(disk)
        leave(disk, 6 * MIB)
        again, _ = fill(buffer, 10 * KIB)
        assert len(again) * 10 * KIB > 20 * MIB
        fill_up(disk)
        assert drain(buffer, ManualClock(), items_max=10) == again, "a smaller reserve is enough to settle them"
        buffer.close()


@pytest.mark.fault(6)
@pytest.mark.parametrize("left", [0, 512 * KIB, 8 * MIB], ids=["nothing", "little", "as-much-as-the-reserve"])
async def test_upkeep_releases_free_pages_on_a_nearly_full_disk(tmp_path: Path, left: int) -> None:
    with small_disk(tmp_path / "disk", 48) as disk:
        buffer, _ = fill_and_drain(disk)
        size = (disk / "buffer.db").stat().st_size
        buffer.keep_reserve()
        leave(disk, left)
        await BufferUpkeep(buffer, ManualClock()).sweep()
        assert (disk / "buffer.db").stat().st_size < MIB < 25 * MIB < size
        assert (disk / RESERVE_FILE).stat().st_size == 8 * MIB
        assert len(fill(buffer, 10 * KIB)[0]) * 10 * KIB > 15 * MIB
        buffer.close()


@pytest.mark.fault(6)
def test_a_disk_that_fills_before_the_agent_has_run_can_be_drained(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        make_site(disk / "site").close()
        assert (disk / "site" / RESERVE_FILE).stat().st_size == MIB
        buffer = Buffer(disk / "site" / "buffer.db")
        accepted, _ = fill(buffer, 10 * KIB)
        fill_up(disk)
        assert drain(buffer, ManualClock()) == accepted
        buffer.close()


def test_reserve_of_another_user_is_released_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = Buffer(tmp_path / "buffer.db")
    with monkeypatch.context() as patch:
        refusals = iter([PermissionError(13, "Permission denied")])
        patch.setattr("os.open", lambda *args, open=os.open: refuse_once(refusals) or open(*args))
        assert buffer.reserve.give_up()
    assert (tmp_path / SPENT_FILE).stat().st_size == 0
    assert buffer.keep_reserve()
    buffer.close()


def refuse_once(refusals: Iterator[OSError]) -> None:
    for error in refusals:
        raise error


@pytest.mark.fault(6)
async def test_upkeep_of_the_agent_recreates_the_reserve_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        make_site(disk / "site").close()
        clock = ManualClock()
        site = Site.open(disk / "site", clock=clock)
        upkeep = BufferUpkeep(site._buffer, clock)
        reserve = disk / "site" / RESERVE_FILE
        reserve.unlink()
        await upkeep.sweep()
        assert reserve.stat().st_size == MIB, "at most a quarter of the disk"
        assert reserve.stat().st_blocks * 512 >= MIB, "and it really holds the room"
        fill_up(disk)
        site._buffer.reserve.give_up()
        fill_up(disk)
        await upkeep.sweep()
        assert not reserve.exists()
        with pytest.raises(Unavailable):
            site.notify.to("ops").send("s", "b")
        enlarge(disk, 64)
        clock.advance(60)
        await upkeep.sweep()
        assert reserve.stat().st_size == 8 * MIB
        assert site.notify.to("ops").send("s", "b")
        site.close()


def test_reserve_of_zero_bytes_creates_no_file(tmp_path: Path) -> None:
    Buffer(tmp_path / "buffer.db").close()
    assert (tmp_path / RESERVE_FILE).exists()
    buffer = Buffer(tmp_path / "buffer.db", BufferOptions(reserve_bytes=0))
    assert buffer.keep_reserve()
    assert list(tmp_path.glob("reserve*")) == []
    assert not buffer.reserve.is_given_up
    assert not buffer.reserve.give_up()
    buffer.close()


def test_reserve_that_cannot_be_created_rejects_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may have the right to write the buffer, but not its folder."""
    Buffer(tmp_path / "buffer.db", BufferOptions(reserve_bytes=0)).close()
    with monkeypatch.context() as patch:
        patch.setattr(Reserve, "_fill", lambda *_: refuse_once(iter([PermissionError(13, "Permission denied")])))
        buffer = Buffer(tmp_path / "buffer.db")
    assert add(buffer)
    assert list(tmp_path.glob("reserve*")) == []
    buffer.close()
