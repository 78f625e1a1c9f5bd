"""A real TCP line to central that can be slow, fall silent without ending, lose what comes back, and be cut."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

PIECE_BYTES = 256


class BadLine:
    """Give `url` to the site; change the others at any time."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.bytes_per_s: float | None = None
        """How much passes in each direction; None for as much as comes."""
        self.is_silent = False
        """Swallow everything, both ways, without hanging up; a connection that was silent once stays so."""
        self.loses_answers = False
        """Swallow what central says, and hang up on both when it says something."""
        self.is_cut = False
        """Accept no connection, and end those that there are."""
        self.connections = 0
        self.bytes_up = 0
        """What has passed towards central."""
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """End all connections, and let none begin until `is_cut` is unset."""
        self.is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        self.connections += 1
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, there_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, there_writer, is_up=True))
                group.create_task(self._pass_on(there_reader, writer, is_up=False))
        finally:
            self._writers -= {writer, there_writer}

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_up: bool) -> None:
        is_swallowing = False
        with suppress(OSError):
            while data := await reader.read(65536 if self.bytes_per_s is None else PIECE_BYTES):
                is_swallowing = is_swallowing or self.is_silent
                if is_swallowing:
                    continue
                if self.loses_answers and not is_up:
                    self.loses_answers = False
                    self.cut()
                    self.is_cut = False
                    return
                if self.bytes_per_s is not None:
                    await asyncio.sleep(len(data) / self.bytes_per_s)
                if is_up:
                    self.bytes_up += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def bad_line(url: str) -> AsyncIterator[BadLine]:
    """A line to the central at this URL."""
    port = urlsplit(url).port
    assert port is not None
    line = BadLine(port)
    # Small buffers, as on a line that is really slow: else everything would seem to pass at once.
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server = await asyncio.start_server(line.serve, sock=listening, limit=1024)
    line.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        yield line
    finally:
        line.cut()
        server.close()
