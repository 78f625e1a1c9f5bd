"""`apprise`: sends through the pool of child processes to a local sink.

Reference: as many processes as the pool has, each with a bare loop over `notify` of one ready-made service of Apprise:
no job to read, no guard, no observed answer, no outcome. Ours: the adapter's `deliver`, as many at once as it has
children. The sink answers in this process, so it costs both the same. Without Apprise there is nothing to measure.

    python -m bench.apprise URL COUNT       the reference's process: waits for a line, sends, prints a line
"""

import asyncio
import importlib
import sys
from datetime import UTC, datetime
from importlib.util import find_spec

from bench.chat import HookSink
from bench.harness import Report, Stopwatch, compare
from bench.stores import Stores
from fieldpost.central.adapters.apprise.adapter import CHILDREN, AppriseAdapter
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Delivered
from fieldpost.core.ids import NotificationId
from fieldpost.core.secret import Secret
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound

HOST = "127.0.1.1"
SUBJECT, BODY = "Pump 3 pressure low", "Pressure at pump 3 fell below 2.1 bar.\n" * 10


async def run(report: Report, stores: Stores, quick: bool) -> None:
    if find_spec("apprise") is None:
        return
    sends = 100 if quick else 400
    sink = await asyncio.get_running_loop().create_server(HookSink, HOST, 0)
    url = f"json://{HOST}:{sink.sockets[0].getsockname()[1]}/alarms"
    outbound = Outbound(OutboundOptions(allow=HOST))
    adapter = AppriseAdapter(outbound=outbound)
    loops = [await _bare_loop(url, sends // CHILDREN) for _ in range(CHILDREN)]
    try:

        async def ours() -> float:
            return await _deliver(adapter, url, sends)

        async def reference() -> float:
            return await _notify(loops, sends)

        notes = f"{sends} messages, {CHILDREN} processes"
        report.add(await compare("apprise", ours, reference, 2 if quick else 5, "messages/s", notes))
    finally:
        for process in loops:
            process.kill()
            await process.wait()
        await adapter.close()
        await outbound.close()
        sink.close()


async def _deliver(adapter: AppriseAdapter, url: str, sends: int) -> float:
    numbers = iter(range(sends))
    envelope = Envelope(
        notification_id=NotificationId("0198c8a0-0000-7000-8000-000000000001"),
        list_name="ops",
        subject=SUBJECT,
        body=BODY,
        targets=("other",),
        settings={},
        dated=datetime.now(UTC),
        gate=lambda: None,
        target_secrets={"other": Secret(url)},
    )

    async def work() -> None:
        for _ in numbers:
            outcome = await adapter.deliver(envelope)
            assert isinstance(outcome, Delivered), outcome

    watch = Stopwatch()
    await asyncio.gather(*(work() for _ in range(CHILDREN)))
    return watch.rate(sends)


async def _bare_loop(url: str, count: int) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.apprise", url, str(count)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def _notify(loops: list[asyncio.subprocess.Process], sends: int) -> float:
    watch = Stopwatch()
    for process in loops:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
    for process in loops:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"sent\n"
    return watch.rate(sends)


def _loop(url: str, count: int) -> None:
    """The process of the reference."""
    service = importlib.import_module("apprise").Apprise.instantiate(url)
    print("ready", flush=True)
    for _ in sys.stdin:
        for _ in range(count):
            assert service.notify(body=BODY, title=SUBJECT)
        print("sent", flush=True)


if __name__ == "__main__":
    _loop(sys.argv[1], int(sys.argv[2]))
