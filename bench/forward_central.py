"""The central side of `forward` and `backlog`: `python -m bench.forward_central ours|bare STORE_URL SITES`.

Prints its URL and its sites' tokens on one line, and serves until it is stopped.
"""

import asyncio
import signal
import socket
import sys

import msgspec
import uvloop
from websockets.asyncio.server import ServerConnection, serve

from bench.harness import log_to_nowhere
from bench.ingest import RawPostgres, RawSqlite
from fieldpost.central import adapters
from fieldpost.central.commands.sender import CommandSender
from fieldpost.central.ingest.mirror import MirrorOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.operate import Operate
from fieldpost.central.secrets.keyring import Keyring, SecretKey
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.watch.watch import Watch
from fieldpost.clock import SystemClock
from fieldpost.core.actor import Actor, Role
from fieldpost.front.app import create_app
from fieldpost.front.server import CentralServer
from fieldpost.link.messages import FRAME_BYTES_MAX, Submit
from fieldpost.run import gc_tuning

ADMIN = Actor("admin", Role.ADMIN)


async def ours(store_url: str, sites: int, stop: asyncio.Event) -> None:
    clock = SystemClock()
    store = open_store(store_url)
    keyring = Keyring([SecretKey.of(bytes(32))])
    operate = Operate.over(store, adapters.load(), clock, keyring)
    watch = Watch.over(store, clock, keyring=keyring)
    ingest = Ingest(store, clock)
    commands = CommandSender(store, ingest.mirrors, MirrorOptions().reconcile_interval_s, clock)
    server = CentralServer(create_app(operate, watch, ingest, commands), socket.create_server(("127.0.0.1", 0)))
    tokens = [(await operate.sites.add(ADMIN, f"site-{number}")).token for number in range(sites)]
    serving, sending = asyncio.create_task(server.serve()), asyncio.create_task(commands.run())
    await server.ready()
    gc_tuning.set_aside()
    print(server.url, *tokens, flush=True)
    await stop.wait()
    server.should_exit = True
    await serving
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await store.close()


async def bare(store_url: str, sites: int, stop: asyncio.Event) -> None:
    """The plain reference: decode, insert, commit, reply. One writer on SQLite, one connection each on PostgreSQL."""
    decoder = msgspec.json.Decoder(Submit)
    writer = RawSqlite(store_url) if store_url.startswith("sqlite") else None

    async def converse(connection: ServerConnection) -> None:
        raw = writer or await RawPostgres.connect(store_url)
        async for frame in connection:
            await raw.insert(decoder.decode(frame).items)
            await connection.send(b"ok")

    async with serve(converse, "127.0.0.1", 0, max_size=FRAME_BYTES_MAX, compression=None) as server:
        host, port = next(iter(server.sockets)).getsockname()[:2]
        print(f"ws://{host}:{port}", flush=True)
        await stop.wait()


async def main() -> None:
    what, store_url, sites = sys.argv[1:]
    log_to_nowhere()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await (ours if what == "ours" else bare)(store_url, int(sites), stop)


if __name__ == "__main__":
    uvloop.run(main())
