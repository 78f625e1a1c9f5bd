"""schemathesis against the application of a test: it reads the API's description and tries what that says."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from fieldpost.front.api.openapi import document
from support.front import Front, served
from support.zgw import BASE, SECRET, Zgw, token

SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
SETTINGS = Path(__file__).with_name("schemathesis.toml")
ZGW_SETTINGS = Path(__file__).with_name("schemathesis-zgw.toml")


async def try_all(front: Front, role: str, folder: Path, *options: str) -> None:
    """With all checks, as this role; fails with the report of what was found wrong."""
    await front.deliver()
    await front.park()
    # From a file, since not every role may read the document.
    described = folder / "openapi.json"
    described.write_text(json.dumps(document()))
    async with served(front.app) as url:
        await run_over(SETTINGS, described, url, front.tokens[role], folder, *options)


async def try_zgw(zgw: Zgw, client: str, folder: Path, *options: str) -> None:
    """The ZGW API by its served document, as this client."""
    described = folder / "zgw.json"
    async with zgw.bare() as nobody:
        described.write_bytes((await nobody.get("schema/openapi.json")).content)
    async with served(zgw.app) as url:
        given = token(client, SECRET, zgw.front.clock.now())
        # It expects 401 without a token, but the standard answers every refused token, a missing one too, with 403.
        more = ("--exclude-checks", "missing_required_header", *options)
        await run_over(ZGW_SETTINGS, described, f"{url}{BASE}", given, folder, *more)


async def run_over(settings: Path, described: Path, url: str, bearer: str, folder: Path, *options: str) -> None:
    process = await asyncio.create_subprocess_exec(
        SCHEMATHESIS,
        *("--config-file", str(settings), "run", str(described), "--url", url),
        *("--header", f"Authorization: Bearer {bearer}"),
        *("--checks", "all", "--seed", "1", "--no-color", *options),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    if process.returncode:
        pytest.fail(said.decode()[-20_000:])
