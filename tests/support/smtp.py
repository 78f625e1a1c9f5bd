"""A client that says to an SMTP server exactly what a test wants said, and nothing else."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Talk:
    """A conversation by hand: `await talk("NOOP")` is the reply, its lines joined by newlines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def __call__(self, line: str) -> str:
        self.send(line.encode() + b"\r\n")
        return await self.reply()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def reply(self) -> str:
        lines = []
        while True:
            line = (await self.reader.readuntil(b"\n")).decode().rstrip("\r\n")
            lines.append(line)
            if line[3:4] != "-":
                return "\n".join(lines)

    async def hello(self) -> str:
        """Hear the banner, say EHLO."""
        assert (await self.reply()).startswith("220")
        return await self("EHLO client.example")

    async def until_data(self, *recipients: str, sender: str = "pump@plant.example") -> str:
        """MAIL, RCPT and DATA; the answer to DATA."""
        await self(f"MAIL FROM:<{sender}>")
        for recipient in recipients or ("ops@plant.example",):
            await self(f"RCPT TO:<{recipient}>")
        return await self("DATA")

    async def start_tls(self, context: ssl.SSLContext, hostname: str) -> None:
        await self.writer.start_tls(context, server_hostname=hostname)


@asynccontextmanager
async def talk_to(host: str, port: int) -> AsyncIterator[Talk]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield Talk(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
