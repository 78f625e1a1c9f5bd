"""schemathesis against the application of a test: it reads the API's description and tries what that says."""

import asyncio
import json
import sys
from pathlib import Path

from fieldpost.front.api.openapi import document
from support.front import Front, served

SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
SETTINGS = Path(__file__).with_name("schemathesis.toml")


async def try_all(front: Front, role: str, folder: Path, *options: str) -> str | None:
    """With all checks, as this role; what was found wrong, or None."""
    await front.deliver()
    await front.park()
    # From a file, since not every role may read the document.
    described = folder / "openapi.json"
    described.write_text(json.dumps(document()))
    async with served(front.app) as url:
        process = await asyncio.create_subprocess_exec(
            SCHEMATHESIS,
            *("--config-file", str(SETTINGS), "run", str(described), "--url", url),
            *("--header", f"Authorization: Bearer {front.tokens[role]}"),
            *("--checks", "all", "--seed", "1", "--no-color", *options),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    return said.decode()[-20_000:] if process.returncode else None
