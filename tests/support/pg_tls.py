"""TLS before a PostgreSQL that speaks none over its Unix socket: what the server itself would do on a TCP port."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

_PORT = 5432
_SSL_REQUEST = bytes.fromhex("0000000804d2162f")


@asynccontextmanager
async def pg_tls(url: str, context: ssl.SSLContext) -> AsyncIterator[int]:
    """A loopback port that speaks PostgreSQL's TLS with this certificate, and nothing without it."""
    folder = parse_qs(urlsplit(url).query)["host"][0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if await reader.readexactly(8) != _SSL_REQUEST:
                writer.close()
                return
            writer.write(b"S")
            await writer.start_tls(context)
            upstream = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{_PORT}")
            pumps = [asyncio.create_task(_pump(reader, upstream[1])), asyncio.create_task(_pump(upstream[0], writer))]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            upstream[1].transport.abort()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
