"""Disks that fail under a site or an embedded central, each as one function, for short forms and long ones."""

import asyncio
import secrets
import threading
from pathlib import Path

from fieldpost.central.store.engine.sqlite_store import sqlite_module
from support.disks import PowerDisk
from support.running_central import RunningCentral, call, until
from support.sender import Sender
from support.site_writers import ENDLESS, ids_in, start

CONFIRMED_BEFORE_CUT = 60
ACKED_BEFORE_CUT = 150


def cut_the_power_of_a_site(disk: PowerDisk) -> int:
    """Four threads of a script send while the power goes; how many sends were confirmed, all of which are there."""
    path = disk.path / "buffer.db"
    writer = start(ENDLESS, path)
    confirmed: list[str] = []
    enough = threading.Event()

    def listen() -> None:
        assert writer.stdout is not None
        for line in writer.stdout:
            confirmed.append(line.strip())
            if len(confirmed) >= CONFIRMED_BEFORE_CUT:
                enough.set()

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        assert enough.wait(30), "the script sends nothing"
        # What a machine without power would still say counts for nothing: while the file system is being shut down, a
        # sync that is under way may end well and its data be dropped. So only what was heard before is held against it.
        before_cut = list(confirmed)
        disk.cut()
    finally:
        writer.kill()
        writer.wait()
        listener.join()
    disk.restart()
    missing = set(before_cut) - ids_in(path)
    assert not missing, f"{len(missing)} of {len(before_cut)} are lost"
    return len(before_cut)


async def cut_the_power_of_central(disk: PowerDisk, folder: Path) -> int:
    """A site sends while the power of central's disk goes; how many were acked, all of which central has afterwards."""
    file = disk.path / "central.db"
    store_url = f"sqlite:///{file}"
    async with RunningCentral(store_url, folder / "node") as node:
        token = (node.folder / "api-token").read_text().strip()
        made = await call(node, token, "POST", "sites", {"name": f"plant-{secrets.token_hex(4)}"})
        async with Sender(made["token"], node.url) as sender:
            sending = asyncio.create_task(_send_on(sender))
            await until(lambda: len(sender.acked) >= ACKED_BEFORE_CUT, 30, "enough to be acked")
            acked = set(sender.acked)
            disk.cut()
            await node.kill()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    disk.restart()
    connection = sqlite_module.connect(str(file))
    try:
        found = {row[0] for row in connection.execute("select notification_id from notifications")}
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    finally:
        connection.close()
    assert found >= acked, "what was acked need not be sent again"
    return len(acked)


async def _send_on(sender: Sender) -> None:
    while True:
        await sender.offer(sender.items(5, "ops"))
