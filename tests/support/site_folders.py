"""Site folders for tests."""

import random
import socket
from pathlib import Path

from fieldpost import Site
from fieldpost.link.credentials import issue

TOKEN = issue("site", bytes(range(40))).text


def make_site(folder: Path, central_url: str = "http://127.0.0.1:9") -> Site:
    """A fresh site; by default one whose central is not there."""
    return Site.create(folder, "plant-7", central_url, TOKEN)


def closed_port() -> int:
    """A loopback port on which nobody listens. Not one of those that the system hands out by itself: the next server of
    another test could get it."""
    return _port(10_000, 12_000)


def free_port() -> int:
    """The same, to listen on later. None of the closed ones: a test that runs at the same time relies on those."""
    return _port(12_000, 15_000)


def _port(first: int, end: int) -> int:
    while True:
        port = random.SystemRandom().randrange(first, end)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
