"""A program that calls the port of a node of a pair with anything but a well-behaved node behind it.

python pair_caller.py strangers HOST PORT      without TLS, and without a certificate: what it gets to read
python pair_caller.py messages HOST PORT FOLDER
    with the certificate of the other node, whose folder this is: the answers to an unknown operation, a batch of an
    old epoch, one after a gap, one with an epoch that the sender cannot hold, and one that was applied before
"""

import asyncio
import json
import ssl
import sys
from contextlib import closing
from pathlib import Path

from fieldpost.clock import SystemClock
from fieldpost.core.errors import FieldpostError
from fieldpost.link.codec import encode
from fieldpost.link.pair_messages import PairAck, PairRefusal, decode_pair
from fieldpost.link.pair_rows import ChangeBatch, StreamPosition
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state
from fieldpost.site.config.folder import read_folder
from fieldpost.site.pair.leadership import Leadership
from fieldpost.site.pair.pair_files import PairFiles
from fieldpost.site.pair.session import PairSession

ANSWER_S = 20.0


async def strangers(host: str, port: int) -> list[str]:
    """What callers read that cannot prove who they are."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    found = []
    for tls in (None, context):
        try:
            given = {} if tls is None else {"ssl": tls, "server_hostname": ""}
            reader, writer = await asyncio.open_connection(host, port, **given)  # type: ignore[arg-type]
            writer.write((2).to_bytes(4, "big") + b"{}")
            async with asyncio.timeout(ANSWER_S):
                found.append((await reader.read(65_536)).decode("latin-1"))
            writer.close()
        except (OSError, EOFError):
            found.append("")
    return found


async def messages(host: str, port: int, folder: Path) -> list[str]:
    """The answers to messages that must change nothing."""
    site = read_folder(folder)
    clock = SystemClock()
    with closing(Buffer(site.buffer_path)) as buffer:
        leadership = Leadership(buffer, clock.monotonic, 1)
        greeting = PairSession(buffer, site.name, clock.now, leadership).greeting()
        state = buffer.read(pair_state.get)
        acked = buffer.read(pair_state.acked)
    context = PairFiles(folder).identity().client_context()
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="")

    async def answer(data: bytes) -> str:
        writer.write(len(data).to_bytes(4, "big") + data)
        while True:
            async with asyncio.timeout(ANSWER_S):
                size = int.from_bytes(await reader.readexactly(4), "big")
                try:
                    message = decode_pair(await reader.readexactly(size))
                except FieldpostError:
                    continue
            match message:
                case PairRefusal(code=code):
                    return code
                case PairAck():
                    return "acked"

    def batch(epoch: int, known: int, after: StreamPosition) -> bytes:
        return encode(
            ChangeBatch(
                epoch=epoch,
                known=known,
                after=after,
                until=StreamPosition(after.messages + 1, after.changes + 1),
                received=StreamPosition(),
                messages=(),
                changes=(),
            )
        )

    writer.write(len(greeting).to_bytes(4, "big") + greeting)
    gap = StreamPosition(acked.messages + 100, acked.changes + 100)
    replay = encode(
        ChangeBatch(
            epoch=state.held,
            known=state.known,
            after=StreamPosition(),
            until=StreamPosition(),
            received=StreamPosition(),
            messages=(),
            changes=(),
        )
    )
    found = [
        await answer(b'{"t":"pair_wipe","all":true}'),
        await answer(batch(state.held, state.held - 1 if state.held else 0, acked)),
        await answer(batch(state.held, state.known, gap)),
        await answer(batch(state.held + 1, state.known + 1, acked)),
        await answer(replay),
    ]
    writer.close()
    return found


if __name__ == "__main__":
    place = sys.argv[2], int(sys.argv[3])
    work = strangers(*place) if sys.argv[1] == "strangers" else messages(*place, Path(sys.argv[4]))
    print(json.dumps(asyncio.run(work)))
