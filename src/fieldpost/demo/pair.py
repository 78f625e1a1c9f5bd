"""The pair of `fieldpost demo --pair`: a second node of the harbour, on this machine."""

import asyncio
import os
import socket
from contextlib import closing
from pathlib import Path

from fieldpost.clock import Clock
from fieldpost.core.errors import Unavailable
from fieldpost.demo.central_api import CentralApi
from fieldpost.demo.scenario import SITES
from fieldpost.demo.setup import ensure_site
from fieldpost.link.credentials import ENTROPY_BYTES
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.config.folder import SETTINGS_FILE, TOKEN_FILE, read_folder, write_new, write_settings
from fieldpost.site.pair import pairing
from fieldpost.site.pair.pair_files import PairFiles

PAIRED = SITES[1].name
SECOND = f"{PAIRED}-second"
"""The folder of the second node."""
JOIN_S = 30.0


async def set_up_pair(api: CentralApi, central_url: str, folder: Path, clock: Clock) -> None:
    """Create the second node and pair it, unless an earlier start did. No agent runs yet. Raises FieldpostError."""
    first, second = folder / PAIRED, folder / SECOND
    if (second / SETTINGS_FILE).exists():
        ensure_site(second, PAIRED, central_url, None)
    if PairFiles(first).is_paired and PairFiles(second).is_paired:
        return
    if not (second / SETTINGS_FILE).exists():
        token = (await api.post("sites", PAIRED, "add-node", body={}))["token"]
        second.mkdir(mode=0o700, exist_ok=True)
        (second / TOKEN_FILE).unlink(missing_ok=True)
        write_new(second / TOKEN_FILE, token + "\n", 0o600)
        write_settings(second, PAIRED, central_url, node=1)
    lines: asyncio.Queue[str] = asyncio.Queue()
    with closing(Buffer(first / "buffer.db")) as one, closing(Buffer(second / "buffer.db")) as other:
        entropy = os.urandom(ENTROPY_BYTES)
        inviting = asyncio.create_task(
            pairing.invite(read_folder(first), one, _address(), entropy, clock, lines.put_nowait)
        )
        try:
            async with asyncio.timeout(JOIN_S):
                line = await lines.get()
                while True:
                    try:
                        await pairing.join(read_folder(second), other, line, _address(), clock)
                        break
                    except Unavailable:
                        # The first node does not listen yet.
                        await clock.sleep(0.1)
                await inviting
        finally:
            inviting.cancel()


def _address() -> str:
    """An address of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
