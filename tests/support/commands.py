"""`fieldpost` on the command line: within the test's own process, which is much quicker, or as a process of its own.

A command that ends by itself, says something and has an exit code is run here. What is about the process is tested on
one: signals, pipes, closed streams, and that the installed command starts at all.
"""

import asyncio
import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

from fieldpost.cli.main import main
from support.front import Front

FIELDPOST = str(Path(sys.executable).with_name("fieldpost"))


@dataclass
class Ran:
    code: int
    out: str
    err: str


@dataclass
class Cli:
    """`fieldpost` against the application of a test."""

    front: Front
    url: str
    folder: Path

    async def __call__(self, *arguments: str, role: str | None = "admin", said: str = "", **environ: str) -> Ran:
        """Run `fieldpost` here with these arguments and this role's token, in a thread beside the application."""
        given = self._environ(role, environ)
        async with asyncio.timeout(60):
            ran = await asyncio.to_thread(
                fieldpost_here, *arguments, given=said.encode(), environ=given, folder=self.folder
            )
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    async def begin(self, *arguments: str, role: str | None = "admin", **environ: str) -> asyncio.subprocess.Process:
        """The same as a process, while it runs."""
        return await asyncio.create_subprocess_exec(
            FIELDPOST,
            *arguments,
            cwd=self.folder,
            env=self._environ(role, environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    def _environ(self, role: str | None, more: Mapping[str, str]) -> dict[str, str]:
        given = {"PATH": os.environ["PATH"], "FIELDPOST_URL": self.url, "COLUMNS": "200"} | dict(more)
        if role is not None:
            given["FIELDPOST_TOKEN"] = self.front.tokens[role]
        return given


def fieldpost_here(
    *arguments: object, given: bytes = b"", environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> "CompletedProcess[bytes]":
    """The command in this thread, up to its exit code; in this environment and folder, or in those of the tests."""
    said, out, err = (io.TextIOWrapper(io.BytesIO(content), encoding="utf-8") for content in (given, b"", b""))
    with (
        contextlib.chdir(folder or Path.cwd()),
        mock.patch.dict(os.environ, os.environ if environ is None else environ, clear=True),
        _streams_of_this_thread(stdin=said, stdout=out, stderr=err),
        mock.patch.object(sys, "argv", ["fieldpost", *map(str, arguments)]),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    written = []
    for stream in (out, err):
        stream.flush()
        written.append(stream.buffer.getvalue())  # type: ignore[attr-defined]
    return CompletedProcess(arguments, int(str(code)), *written)


@contextlib.contextmanager
def _streams_of_this_thread(**streams: io.TextIOWrapper) -> Iterator[None]:
    """What this thread reads and writes is in these; what other threads say meanwhile goes where it went before."""
    before = {name: getattr(sys, name) for name in streams}
    for name, stream in streams.items():
        setattr(sys, name, _OfThread(stream, before[name]))
    try:
        yield
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)


class _OfThread:
    def __init__(self, own: object, others: object) -> None:
        self._own, self._others, self._thread = own, others, threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own if threading.get_ident() == self._thread else self._others, name)
