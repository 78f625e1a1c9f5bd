"""A caller's key: the same send or call made twice is one, also from two processes at once."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from fieldpost import Site
from fieldpost.core.errors import Conflict, InvalidInput, OperationFailed
from fieldpost.core.sites.forwarding import Clear
from fieldpost.core.sites.message import Category
from fieldpost.site.upkeep import BufferUpkeep
from support.plant import Plant

SENDING = """
import sys
from fieldpost import Site
with Site.open(sys.argv[1]) as site:
    for number in range(20):
        print(site.notify.to("ops").send("s", str(number), key=f"run-{number}"))
"""


def test_the_same_send_with_the_same_key_is_one_notification(plant: Plant) -> None:
    site = plant.site
    first = site.notify.to("ops").send("s", "b", key="alarm-7", script="one.py")
    assert site.notify.to("ops").send("s", "b", key="alarm-7", script="two.py") == first
    assert site.notify.to("ops").send("s", "b") != first
    assert site._buffer.depth().waiting == {Category.NOTIFICATION: 2}


def test_key_is_known_after_the_notification_left_the_buffer(plant: Plant) -> None:
    first = plant.site.notify.to("ops").send("s", "b", key="k")
    plant.site._buffer.settle([(first, Clear())], plant.clock.now())
    assert plant.site.notify.to("ops").send("s", "b", key="k") == first
    assert plant.site._buffer.depth().waiting == {}


@pytest.mark.parametrize(("to", "subject", "body"), [("ops", "s", "other"), ("ops", "other", "b"), ("it", "s", "b")])
def test_a_key_that_was_used_for_something_else_is_a_conflict_and_writes_nothing(
    plant: Plant, to: str, subject: str, body: str
) -> None:
    first = plant.site.notify.to("ops").send("s", "b", key="k")
    with pytest.raises(Conflict) as caught:
        plant.site.notify.to(to).send(subject, body, key="k")
    assert caught.value.code == "message.key_used"
    assert first in caught.value.message
    assert plant.site._buffer.depth().waiting == {Category.NOTIFICATION: 1}


def test_the_same_call_with_the_same_key_is_made_once(plant: Plant) -> None:
    call = plant.site.external("erp").call
    first = call("POST", "/orders", json={"n": 1}, key="order-1")
    assert call("POST", "/orders", json={"n": 1}, key="order-1") == first
    assert len(plant.server.requests) == 1
    for other in ({"json": {"n": 2}}, {"body": "x"}):
        with pytest.raises(Conflict):
            call("POST", "/orders", key="order-1", **other)  # type: ignore[arg-type]
    write = plant.site.database("plant").write
    with pytest.raises(Conflict):
        write("count", {"unit": "p", "n": 1}, key="order-1")
    written = write("count", {"unit": "p", "n": 1}, key="count-1")
    assert write("count", {"unit": "p", "n": 1}, key="count-1") == written
    assert plant.query("SELECT count(*) FROM counts") == [(1,)]


@pytest.mark.req("API-08")
def test_rejected_call_is_rejected_again_under_the_same_key(plant: Plant) -> None:
    """A script that was killed before it could act on the refusal finds it when it runs again."""
    call = plant.site.external("erp").call
    plant.server.on().answer(409)
    with pytest.raises(OperationFailed) as refused:
        call("POST", "/orders", json={"n": 1}, key="order-1")
    with pytest.raises(OperationFailed) as again:
        call("POST", "/orders", json={"n": 1}, key="order-1")
    assert again.value.code == "call.failed"
    assert (again.value.call_id, again.value.http_status) == (refused.value.call_id, 409)
    assert refused.value.message in again.value.message
    assert len(plant.server.requests) == 1
    dead = plant.site.external("dead").call
    assert dead("GET", "/", key="later") == dead("GET", "/", key="later"), "what is tried again is no refusal"


def test_processes_that_send_the_same_at_once_make_one_of_each(plant: Plant) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", SENDING, plant.folder], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    printed = {process.communicate()[0] for process in processes}
    assert len(printed) == 1
    assert len(set(printed.pop().split())) == 20
    assert plant.site._buffer.depth().waiting == {Category.NOTIFICATION: 20}


def test_key_is_deleted_after_its_retention(plant: Plant) -> None:
    first = plant.site.notify.to("ops").send("s", "b", key="k")
    upkeep = BufferUpkeep(plant.site._buffer, plant.clock)
    plant.clock.advance(7 * 86_400)
    asyncio.run(upkeep.sweep())
    assert plant.site.notify.to("ops").send("s", "b", key="k") == first
    plant.clock.advance(1)
    asyncio.run(upkeep.sweep())
    assert plant.site.notify.to("ops").send("s", "b", key="k") != first


@pytest.mark.bad_input(6)
@pytest.mark.parametrize("key", ["", " k", "a\nb", "x" * 257, "\x00", "\ud800", 5, b"k"])
def test_a_bad_key_is_refused_by_name(plant: Plant, key: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plant.site.notify.to("ops").send("s", "b", key=key)
    assert caught.value.field == "key"
    with pytest.raises(InvalidInput):
        plant.site.external("erp").call("GET", "/", key=key)
    assert plant.site._buffer.depth().waiting == {}


def test_a_send_that_is_refused_leaves_its_key_free(plant: Plant, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        plant.site.notify.to("ops").send("two\nlines", "b", key="k")
    assert plant.site.notify.to("ops").send("s", "b", key="k")


def test_key_of_one_site_is_unknown_at_another(plant: Plant, tmp_path: Path) -> None:
    from support.site_folders import make_site

    other: Site = make_site(tmp_path / "other")
    assert other.notify.to("ops").send("s", "x", key="k") != plant.site.notify.to("ops").send("s", "y", key="k")
    other.close()
