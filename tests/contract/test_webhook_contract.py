"""The webhook adapter passes the suite that every adapter must pass, as the adapter of lists."""

import base64
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme

from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.events.signature import make_signing_secret
from fieldpost.core.secret import Secret
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import AdapterContract, Behaviour, HttpServer, World
from fieldpost.testing.http.rules import ReceivedRequest

PASSWORD = "canary-5T0rm!"
SECRET = make_signing_secret(b"canary of the signing secret")
AUTHORITY = trustme.CA()


@pytest.mark.dec("DEC-62")
@pytest.mark.req("WHK-02", "WHK-21")
class TestWebhookContract(AdapterContract):
    good_targets = ("https://hook.example/a", "https://hook.example:8443/b?c=d")
    bad_targets = ("", "hook", "ftp://hook.example/", "https://user@hook.example/", "http://hook.example/")
    bad_settings = (
        ("secret", "whsec_"),
        ("auth", "digest"),
        ("auth_header", "Host"),
        ("quick_tries", 11),
        ("quick_tries_base_s", 0),
        ("quick_tries_pattern", "random"),
        ("retry_codes", "200"),
        ("give_up_codes", "teapot"),
        ("token_url", "ftp://x"),
    )

    def make(self, deadline_s: float) -> Adapter:
        context = ssl.create_default_context()
        AUTHORITY.configure_trust(context)
        outbound = Outbound(OutboundOptions(allow="127.0.0.1"), tls_context=context)
        return _Closing(outbound=outbound, deadline_s=deadline_s)

    @asynccontextmanager
    async def world(self, behaviour: Behaviour) -> AsyncIterator[World]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
        async with HttpServer(tls=context) as server:
            port = server.port
            accepts = True
            match behaviour:
                case "refuses":
                    server.on().answer(422)
                    accepts = False
                case "later":
                    server.on().answer(503)
                    accepts = False
                case "repeats":
                    pair = base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
                    said = f"you said {PASSWORD}, or {pair}, or {SECRET.reveal()}"
                    server.on().answer(401, said, headers={"X-Said": PASSWORD})
                case "silent":
                    server.on().hang()
                case "away":
                    with socket.socket() as taken:
                        taken.bind(("127.0.0.1", 0))
                        yield _world(taken.getsockname()[1], server, accepts)
                    return
                case "hangs":
                    # Connections are established, but nobody answers the TLS handshake.
                    with socket.create_server(("127.0.0.1", 0)) as listening:
                        yield _world(listening.getsockname()[1], server, accepts)
                    return
                case _:
                    pass
            yield _world(port, server, accepts)


class _Closing(WebhookAdapter):
    """Closes the client that the test made for it."""

    async def close(self) -> None:
        await self._outbound.close()


def _world(port: int, server: HttpServer, accepts: bool) -> World:
    settings = {
        "secret": SECRET,
        "auth": "basic",
        "username": "ann",
        "auth_secret": Secret(PASSWORD),
        "quick_tries": 0,
        "give_up_codes": "422",
    }
    targets = tuple(f"https://127.0.0.1:{port}/{name}" for name in ("a", "b"))

    def copies() -> list[tuple[str, str]]:
        requests: list[ReceivedRequest] = list(server.requests) if accepts else []
        return [(f"https://127.0.0.1:{port}{r.path}", r.headers["webhook-id"]) for r in requests]

    return World(settings, targets, copies)
