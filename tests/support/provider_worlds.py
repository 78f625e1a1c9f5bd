"""Worlds of the contract tests of providers: a fake provider over TLS, in each behaviour."""

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trustme

from fieldpost.core.secret import Secret
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import Behaviour, World
from fieldpost.testing.http.rules import HttpReaction
from fieldpost.testing.providers import FakeTwilio, ProviderServer

AUTHORITY = trustme.CA()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderWorld:
    """A provider, and what its adapter needs to reach it at a port."""

    server: Callable[[ssl.SSLContext], ProviderServer]
    settings: Callable[[str], Mapping[str, object]]
    """The channel's settings for the provider at this URL."""
    targets: tuple[str, ...]
    many: tuple[str, ...] = ()
    refuses: HttpReaction = field(default_factory=lambda: HttpReaction(status=400))
    too_many: HttpReaction = field(default_factory=lambda: HttpReaction(status=429))
    secret_of: Callable[[str, str], str] | None = None
    """The secret of a target, for the provider at a URL."""

    @asynccontextmanager
    async def behaving(self, behaviour: Behaviour) -> AsyncIterator[World]:
        async with self.server(server_context()) as server:
            match behaviour:
                case "refuses":
                    answer_by(server, self.refuses)
                case "later":
                    server.on().answer(503)
                case "too_many":
                    answer_by(server, self.too_many)
                case "fails_later":
                    assert isinstance(server, FakeTwilio)
                    server.new_status, server.new_error_code = "undelivered", 30003
                case "repeats":
                    server.on().answer(401, self._canaries(server.url))
                case "silent":
                    server.on().hang()
                case "away":
                    with socket.socket() as taken:
                        taken.bind(("127.0.0.1", 0))
                        yield self._world(taken.getsockname()[1], server)
                    return
                case "hangs":
                    # Connections are established, but nobody answers the TLS handshake.
                    with socket.create_server(("127.0.0.1", 0)) as listening:
                        yield self._world(listening.getsockname()[1], server)
                    return
                case _:
                    pass
            yield self._world(server.port, server)

    def _world(self, port: int, server: ProviderServer) -> World:
        url = f"https://127.0.0.1:{port}"
        return World(
            self.settings(url),
            self.targets,
            lambda: [(copy.target, copy.notification_id) for copy in server.copies],
            self.many,
            self._target_secrets(url),
            lambda: [copy.text for copy in server.copies],
        )

    def _target_secrets(self, url: str) -> dict[str, Secret]:
        secret_of = self.secret_of
        if secret_of is None:
            return {}
        return {target: Secret(secret_of(url, target)) for target in {*self.targets, *self.many}}

    def _canaries(self, url: str) -> str:
        secrets = [*self.settings(url).values(), *self._target_secrets(url).values()]
        return "you said " + ", ".join(secret.reveal() for secret in secrets if isinstance(secret, Secret))


def provider_outbound() -> Outbound:
    """Clients that trust the fake providers and may reach loopback."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return Outbound(OutboundOptions(allow="127.0.0.1"), tls_context=context)


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    return context


def answer_by(server: ProviderServer, reaction: HttpReaction) -> None:
    """Answer every request like this."""
    server.on().answer(reaction.status, reaction.body, reaction.headers)
