"""The email adapter passes the suite that every adapter must pass."""

import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.secret import Secret
from fieldpost.testing import AdapterContract, Behaviour, MailServer, World

PASSWORD = "canary-5T0rm§"
TARGETS = ("anna@plant.example", "bert@plant.example")


@pytest.mark.req("ADP-01", "ADP-02", "ADP-03", "ADP-09", "ADP-10", "ADP-13")
@pytest.mark.threat(23)
@pytest.mark.parametrize("extensions", [("PIPELINING", "SIZE", "AUTH"), ("AUTH",)], ids=["pipelined", "one_by_one"])
class TestEmailContract(AdapterContract):
    good_targets = ("ops@plant.example", "Jörg@Müller.example")
    bad_targets = ("", "ops", "a@b@c", "a@b.c\r\nRCPT TO:<x@y>", "Ops <ops@plant.example>")
    bad_settings = (
        ("tls", "ssl"),
        ("port", 0),
        ("host", "smtp://x"),
        ("auth", "digest"),
        ("max_connections", 0),
        ("pipelining", "on"),
    )
    extensions: tuple[str, ...]

    @pytest.fixture(autouse=True)
    def _offered(self, extensions: tuple[str, ...]) -> None:
        self.extensions = extensions

    def make(self, deadline_s: float) -> Adapter:
        return EmailAdapter(deadline_s=deadline_s)

    @asynccontextmanager
    async def world(self, behaviour: Behaviour) -> AsyncIterator[World]:
        async with MailServer(auth=lambda _: True, extensions=self.extensions) as server:
            port = server.port
            match behaviour:
                case "refuses":
                    server.on("rcpt").reply(550, "5.1.1 no such user")
                case "later":
                    server.on("rcpt").reply(450, "4.2.1 busy")
                case "away":
                    with socket.socket() as taken:
                        taken.bind(("127.0.0.1", 0))
                        yield world(taken.getsockname()[1], server)
                    return
                case "hangs":
                    server.on("mail").hang()
                case "silent":
                    server.on("dot").keep_mail().hang()
                case "repeats":
                    said = base64.b64encode(f"\0alerts\0{PASSWORD}".encode()).decode()
                    server.on("auth").reply(535, f"5.7.8 you said {PASSWORD}, or {said}")
                case _:
                    pass
            yield world(port, server)


def world(port: int, server: MailServer) -> World:
    settings = {
        "host": "127.0.0.1",
        "port": port,
        "tls": "none",
        "from_address": "alerts@plant.example",
        "auth": "basic",
        "username": "alerts",
        "password": Secret(PASSWORD),
    }

    def copies() -> list[tuple[str, str]]:
        return [(target, mail.message_id or "") for mail in server.mails for target in mail.recipients]

    return World(settings, TARGETS, copies, tuple(f"user{number}@plant.example" for number in range(250)))
