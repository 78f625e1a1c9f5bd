"""Site folders for tests."""

from pathlib import Path

from fieldpost import Site
from fieldpost.link.credentials import issue

TOKEN = issue("site", bytes(range(40))).text


def make_site(folder: Path, central_url: str = "http://127.0.0.1:9") -> Site:
    """A fresh site; by default one whose central is not there."""
    return Site.create(folder, "plant-7", central_url, TOKEN)
