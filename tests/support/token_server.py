"""A token endpoint on loopback: gives out tokens as an OAuth2 server does, and misbehaves as told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Misbehave = Callable[[web.Request], Awaitable[web.StreamResponse]]


class TokenServer:
    """Counts what it is asked; `answer` takes its place when a test wants another answer."""

    def __init__(self) -> None:
        self.url = ""
        self.forms: list[dict[str, str]] = []
        self.given: list[str] = []
        self.life_s: Any = 3600
        self.answer: Misbehave | None = None
        self.let_go = asyncio.Event()
        self.let_go.set()

    async def token(self, request: web.Request) -> web.StreamResponse:
        self.forms.append({name: str(value) for name, value in (await request.post()).items()})
        await self.let_go.wait()
        if self.answer is not None:
            return await self.answer(request)
        self.given.append(f"token-{len(self.given) + 1}-of-many")
        body = {"access_token": self.given[-1], "token_type": "Bearer", "expires_in": self.life_s}
        return web.json_response({name: value for name, value in body.items() if value is not None})


@asynccontextmanager
async def token_server(host: str = "127.0.0.1") -> AsyncIterator[TokenServer]:
    server = TokenServer()
    app = web.Application()
    app.router.add_post("/token", server.token)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    server.url = f"http://{host}:{runner.addresses[0][1]}/token"
    try:
        yield server
    finally:
        server.let_go.set()
        await runner.cleanup()
