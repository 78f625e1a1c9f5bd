"""Central's first start, cut off: the administrator's token and link must not be lost while the account is kept."""

from pathlib import Path

import aiohttp
import pytest

from support.disks import PowerDisk
from support.running_central import RunningCentral, call

FILES = ("api-token", "first-login")
# Ends the process, as kill -9 does, when it is about to do this to a file of this name.
END_AT = """
import os, sys
def end(event, arguments):
    if event == {event!r} and {name!r} in str(arguments[0]) and (event != "open" or arguments[2] & os.O_CREAT):
        os.kill(os.getpid(), 9)
sys.addaudithook(end)
"""


async def assert_admin_can_enter(node: RunningCentral) -> None:
    token, link = ((node.folder / name).read_text().strip() for name in FILES)
    assert [one["name"] for one in (await call(node, token, "GET", "users"))["users"]] == ["admin"]
    # The port is another one after a restart.
    path = link.split("/", 3)[3]
    async with aiohttp.ClientSession() as session, session.get(f"{node.url}/{path}") as page:
        assert "Choose a password" in await page.text()


@pytest.mark.parametrize(
    ("event", "name"), [("open", FILES[0]), ("open", FILES[1]), ("os.rename", FILES[0]), ("os.rename", FILES[1])]
)
async def test_kill_while_the_first_secrets_are_written_leaves_a_start_that_can_be_repeated(
    tmp_path: Path, event: str, name: str
) -> None:
    folder = tmp_path / "node"
    cut_off = RunningCentral(
        f"sqlite:///{tmp_path}/central.db", folder, first=f"exec({END_AT.format(event=event, name=name)!r}); "
    )
    with pytest.raises(AssertionError, match="did not start"):
        await cut_off.start()
    async with RunningCentral(f"sqlite:///{tmp_path}/central.db", folder) as node:
        await assert_admin_can_enter(node)


@pytest.mark.parametrize("store", ["on the same disk", "elsewhere"])
async def test_power_cut_right_after_the_first_start_keeps_its_secrets(tmp_path: Path, store: str) -> None:
    with PowerDisk(tmp_path, 96) as disk:
        at = disk.path if store == "on the same disk" else tmp_path
        store_url, folder = f"sqlite:///{at}/central.db", disk.path / "new" / "node"
        async with RunningCentral(store_url, folder) as node:
            disk.cut()
            await node.kill()
        disk.restart()
        async with RunningCentral(store_url, folder) as node:
            await assert_admin_can_enter(node)
            await node.kill()
