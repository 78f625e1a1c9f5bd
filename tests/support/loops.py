"""A loop of ours while a test looks: `run()` until it is told to stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

STOP_S = 30.0


class Loop(Protocol):
    async def run(self, stopping: asyncio.Event) -> Any: ...


@asynccontextmanager
async def running(loop: Loop) -> AsyncIterator[None]:
    """It runs within, and has come to its end in order after."""
    stopping = asyncio.Event()
    task = asyncio.create_task(loop.run(stopping))
    try:
        yield
    finally:
        stopping.set()
        async with asyncio.timeout(STOP_S):
            await task
