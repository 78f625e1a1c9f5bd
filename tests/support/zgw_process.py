"""The project of `zgw_app` as a process in its own environment."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from support.need import ZGW_PYTHON, need
from support.ports import free_port

SUPPORT = Path(__file__).resolve().parent
START_S = 60.0


@dataclass
class ZgwApp:
    """The running project."""

    url: str
    session: aiohttp.ClientSession

    async def do(self, action: str, **headers: str) -> str:
        async with self.session.post(f"{self.url}/do/{action}", headers=headers) as answer:
            text = await answer.text()
        assert answer.status == 200, text[-4000:]
        return text

    async def create_zaak(self, **fields: str) -> None:
        async with self.session.post(f"{self.url}/zaken", json=fields) as answer:
            assert answer.status == 201, await answer.text()

    async def received(self) -> list[bytes]:
        async with self.session.get(f"{self.url}/received") as answer:
            return [base64.b64decode(one) for one in (await answer.json())["bodies"]]


@asynccontextmanager
async def zgw_app(database: str, api_root: str, client_id: str, secret: str) -> AsyncIterator[ZgwApp]:
    """The project, from its start to its end."""
    need("zgw")
    port = free_port()
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SUPPORT),
        "ZGW_APP_DATABASE": database,
        "ZGW_APP_DOMAIN": f"127.0.0.1:{port}",
        "ZGW_APP_API_ROOT": api_root,
        "ZGW_APP_CLIENT_ID": client_id,
        "ZGW_APP_SECRET": secret,
    }
    process = await asyncio.create_subprocess_exec(
        *(ZGW_PYTHON, "-m", "zgw_app.serve", str(port)),
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,  # its errors go to those of the test
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            assert await process.stdout.readline() == b"ready\n"
        async with aiohttp.ClientSession() as session:
            yield ZgwApp(f"http://127.0.0.1:{port}", session)
    finally:
        process.kill()
        await process.wait()
