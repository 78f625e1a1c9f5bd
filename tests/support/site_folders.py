"""Site folders for tests."""

import socket
from pathlib import Path

from fieldpost import Site
from fieldpost.link.credentials import issue

TOKEN = issue("site", bytes(range(40))).text


def make_site(folder: Path, central_url: str = "http://127.0.0.1:9") -> Site:
    """A fresh site; by default one whose central is not there."""
    return Site.create(folder, "plant-7", central_url, TOKEN)


def closed_port() -> int:
    """A loopback port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
