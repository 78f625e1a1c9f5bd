"""A site, as a script sees it.

from fieldpost import Site

site = Site.open("/var/lib/fieldpost/site")
id = site.notify.to("operators").send("Pump 3 stopped", "No flow since 08:14.")
print(site.notify.status(id).status)
"""

import os
from pathlib import Path
from types import TracebackType

from fieldpost.clock import Clock, SystemClock
from fieldpost.site.buffer import Buffer
from fieldpost.site.folder import Folder, create_folder, read_folder
from fieldpost.site.notify import Notify


class Site:
    """One site's folder, open for scripts. Safe to share among threads, and usable after a fork.

    Opening is cheap, and all that is open in one process shares one connection: open it where it is needed.
    """

    notify: Notify
    """Notifications: `site.notify.to(list_name).send(subject, body)`, `site.notify.status(id)`."""

    def __init__(self, folder: Folder, clock: Clock) -> None:
        """Scripts use `Site.open`."""
        self._folder = folder
        self._buffer = Buffer(folder.buffer_path)
        self.notify = Notify(self._buffer, folder.endpoint, clock)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, clock: Clock | None = None) -> "Site":
        """Open the site of this folder; its buffer is made if it is not there yet. No agent needs to run.

        Raises ConfigError when the folder is no site's or `site.toml` is wrong, Unavailable when the buffer cannot be
        opened.
        """
        return cls(read_folder(Path(folder)), clock or SystemClock())

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        name: str,
        central_url: str,
        token: str,
        *,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> "Site":
        """Make a site's folder (`site.toml`, `token` with mode 0600, `buffer.db`) and open it.

        Raises InvalidInput or ConfigError for a bad name, URL or token, Conflict if the folder is a site's already.
        """
        made = create_folder(Path(folder), name, central_url, token, Path(ca_file) if ca_file is not None else None)
        return cls(made, SystemClock())

    @property
    def name(self) -> str:
        """The site's name, as in `site.toml`. Central knows the site by its token."""
        return self._folder.name

    def close(self) -> None:
        """Give back the buffer. Closing twice is fine; using the site afterwards raises Conflict."""
        self._buffer.close()

    def __enter__(self) -> "Site":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Site({self._folder.name!r}, {str(self._folder.path)!r})"
