"""The disk of an embedded central: full, and without power."""

import asyncio
import re
from pathlib import Path

import httpx2
import pytest

from fieldpost import Site
from fieldpost.core.ids import NotificationId
from fieldpost.run.site import run_site
from fieldpost.site.config.options import ForwardOptions
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.databases import SqliteFiles
from support.disks import PowerDisk, fill_up, small_disk
from support.front import open_front, served
from support.running_central import until
from support.storage_ordeals import cut_the_power_of_central


@pytest.mark.fault(4)
@pytest.mark.req("DEC-01", "DEC-02", "ING-03")
async def test_power_cut_of_central_loses_nothing_acked(tmp_path: Path) -> None:
    with PowerDisk(tmp_path, 96) as disk:
        assert await cut_the_power_of_central(disk, tmp_path) > 100


@pytest.mark.fault(7)
@pytest.mark.req("ING-05", "SF-07")
async def test_full_disk_of_central_is_reported_and_sites_keep_their_messages(
    tmp_path: Path, sqlite_files: SqliteFiles
) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        async with (
            open_front(sqlite_files.fresh(disk), ManualClock()) as front,
            served(front.app) as url,
            front.client() as browser,
            front.client("site") as sender,
        ):
            await log_in(browser, front.password("viewer"))
            fill_up(disk)
            answer = await sender.post("/link/v1/submit", json={"t": "submit", "seq": 1, "items": [item()]})
            assert answer.status_code == 503
            assert "Retry-After" in answer.headers

            site = Site.create(tmp_path / "site", SITE, url, front.tokens["site"])
            sent = site.notify.to("ops").send("Pump 3", "x" * 100_000)
            stopping = asyncio.Event()
            agent = asyncio.create_task(run_site(tmp_path / "site", ForwardOptions(interval_s=0.1), stopping=stopping))
            await until(lambda: asyncio.to_thread(is_put_off, site, sent), 20, "the site to be put off")
            anonymous = await browser.get("/readyz", headers={"Accept": "application/json"})
            assert anonymous.status_code == 503
            assert "disk" not in anonymous.text
            known = {"Authorization": f"Bearer {front.tokens['viewer']}"}
            ready = await browser.get("/readyz", headers={"Accept": "application/json", **known})
            assert ready.status_code == 503
            assert "disk" in ready.text
            page = await browser.get("/")
            assert "Central cannot write to its database and rejects new notifications" in page.text
            assert "full" in page.text

            (disk / "filler").unlink()
            await until(lambda: asyncio.to_thread(is_at_central, site, sent), 20, "central to have it after all")
            stopping.set()
            await agent
            site.close()
            page = await browser.get("/")
            assert "Central cannot write to its database" not in page.text
            assert (await browser.get("/readyz")).status_code == 200


def is_put_off(site: Site, sent: NotificationId) -> bool:
    found = site.notify.status(sent)
    return found.status == "forwarding" and found.last_error is not None


def is_at_central(site: Site, sent: NotificationId) -> bool:
    return site.notify.status(sent).status == "pending"


def item() -> dict[str, str]:
    return {
        "notification_id": "01a1de57-9e44-7863-858d-f15d85e1a8b2",
        "list_name": "ops",
        "subject": "s",
        "body": "x" * 100_000,
    }


async def log_in(browser: httpx2.AsyncClient, password: str) -> None:
    csrf = re.search(r'name="csrf" value="([^"]+)"', (await browser.get("/login")).text)
    assert csrf is not None
    answer = await browser.post("/login", data={"csrf": csrf[1], "name": "viewer", "password": password})
    assert answer.status_code == 303
