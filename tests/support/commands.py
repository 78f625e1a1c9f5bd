"""`fieldpost` as a process against the application of a test."""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from support.front import Front

FIELDPOST = str(Path(sys.executable).with_name("fieldpost"))


@dataclass
class Ran:
    code: int
    out: str
    err: str


@dataclass
class Cli:
    front: Front
    url: str
    folder: Path

    async def __call__(self, *arguments: str, role: str | None = "admin", **environ: str) -> Ran:
        """Run `fieldpost` with these arguments and this role's token."""
        process = await self.begin(*arguments, role=role, **environ)
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    async def begin(self, *arguments: str, role: str | None = "admin", **environ: str) -> asyncio.subprocess.Process:
        """The same while it runs."""
        given = {"PATH": os.environ["PATH"], "FIELDPOST_URL": self.url, "COLUMNS": "200"} | environ
        if role is not None:
            given["FIELDPOST_TOKEN"] = self.front.tokens[role]
        return await asyncio.create_subprocess_exec(
            FIELDPOST,
            *arguments,
            cwd=self.folder,
            env=given,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
