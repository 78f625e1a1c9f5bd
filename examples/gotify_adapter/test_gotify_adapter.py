"""The adapter passes the contract suite. Needs Fieldpost and pytest only."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from aiohttp import web
from fieldpost_gotify import GotifyAdapter

from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.secret import Secret
from fieldpost.testing import AdapterContract, Behaviour, World

TOKENS = {"night-shift": "Acanary_48f1", "day-shift": "Acanary_17c0"}


class TestGotifyContract(AdapterContract):
    good_targets = ("plant-7-alarms", "A_b-9")
    bad_targets = ("", "with space", "a/b", "x" * 65, "ä")
    bad_settings = (("url", "ftp://x"), ("url", "http://elsewhere.example"))

    def make(self, deadline_s: float) -> Adapter:
        return GotifyAdapter(deadline_s=deadline_s)

    @asynccontextmanager
    async def world(self, behaviour: Behaviour) -> AsyncIterator[World]:
        copies: list[tuple[str, str]] = []

        async def answer(request: web.Request) -> web.Response:
            said = await request.json()

            def keep() -> None:
                label = next(label for label, token in TOKENS.items() if token == request.headers["X-Gotify-Key"])
                copies.append((label, said["message"].splitlines()[-1]))

            match behaviour:
                case "refuses":
                    return web.Response(status=400)
                case "later":
                    return web.Response(status=503)
                case "silent":
                    keep()
                    await asyncio.Event().wait()
                case "repeats":
                    return web.Response(status=401, reason="not " + str(TOKENS), text=str(request.headers))
            keep()
            return web.Response(text="{}")

        runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        with ExitStack() as stack:
            if behaviour == "away":
                port = closed_port(stack)
            elif behaviour == "hangs":
                port = full_port(stack)
            settings = {"url": f"http://127.0.0.1:{port}"}
            secrets = {label: Secret(token) for label, token in TOKENS.items()}
            yield World(settings, tuple(TOKENS), lambda: copies, target_secrets=secrets)
        await runner.cleanup()


def closed_port(stack: ExitStack) -> int:
    """A bound port without a listener."""
    taken = stack.enter_context(socket.socket())
    taken.bind(("127.0.0.1", 0))
    return int(taken.getsockname()[1])


def full_port(stack: ExitStack) -> int:
    """A port with a full accept queue: the kernel drops new connections."""
    listener = stack.enter_context(socket.socket())
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    for _ in range(4):
        filler = stack.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
    return int(listener.getsockname()[1])
