"""A TCP line from a relay to central that loses the answers to publishes, and to nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

PUBLISH = b"POST /api/v1/events "


class PublishLine:
    """Give `url` to the relay; change the others at any time."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.answers_to_lose = 0
        """Of so many publishes to come the answer is lost: central has acked, and the connection ends."""
        self.answers_lost = 0
        self.is_holding = False
        """Keep the answers to publishes back without ending the connection."""
        self.answers_held = 0
        self._port = port

    async def until(self, count: int) -> None:
        """Wait until this many answers were lost or held."""
        async with asyncio.timeout(30):
            while self.answers_lost + self.answers_held < count:
                await asyncio.sleep(0.002)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        is_publish = False

        async def up() -> None:
            nonlocal is_publish
            with suppress(OSError):
                while data := await reader.read(65536):
                    if b" HTTP/1.1\r\n" in data[:200]:
                        is_publish = data.startswith(PUBLISH)
                    there_writer.write(data)
                    await there_writer.drain()

        async def down() -> None:
            with suppress(OSError):
                while data := await there_reader.read(65536):
                    if is_publish and self.answers_to_lose:
                        self.answers_to_lose -= 1
                        self.answers_lost += 1
                        return
                    if is_publish and self.is_holding:
                        self.answers_held += 1
                        continue
                    writer.write(data)
                    await writer.drain()

        pumps = [asyncio.create_task(up()), asyncio.create_task(down())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for one in (writer, there_writer):
                one.transport.abort()


@asynccontextmanager
async def publish_line(url: str) -> AsyncIterator[PublishLine]:
    """A line to the central at this URL."""
    port = urlsplit(url).port
    assert port is not None
    line = PublishLine(port)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        server.close()
