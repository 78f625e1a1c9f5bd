"""The control connections that this node has, by site.

A node of a site may have more than one for a while: its old one is not yet known to be dead. Commands go over the
newest; when that ends, over the one before it. Of a pair, commands go to the leader only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from fieldpost.core.sites.node import SiteNode
from fieldpost.link.messages import LinkMessage


class SiteConnection(Protocol):
    """One control connection to a site."""

    @property
    def sender(self) -> SiteNode:
        """The site and its node."""

    @property
    def is_over(self) -> bool: ...

    async def send(self, message: LinkMessage) -> None:
        """Raises Unavailable when the connection is over or the site does not read."""

    def end(self) -> None:
        """Send nothing more on it."""


class ControlConnections:
    """The registry of one node."""

    def __init__(self) -> None:
        self._by_site: dict[str, list[SiteConnection]] = {}

    def of(self, site: str, node: int | None = None) -> SiteConnection | None:
        """The newest connection of this site, or of one of its nodes, if this node of central has one."""
        found = (one for one in reversed(self._by_site.get(site, [])) if not one.is_over)
        return next((one for one in found if node in (None, one.sender.node)), None)

    @property
    def sites(self) -> list[str]:
        """The sites that are connected to this node."""
        return [site for site in self._by_site if self.of(site) is not None]

    @contextmanager
    def held(self, connection: SiteConnection) -> Iterator[None]:
        """Keep this connection in the registry, and end it afterwards."""
        site = connection.sender.site
        self._by_site.setdefault(site, []).append(connection)
        try:
            yield
        finally:
            connection.end()
            self._by_site[site].remove(connection)
            if not self._by_site[site]:
                del self._by_site[site]
