"""A site, as a script sees it.

from fieldpost import Site

site = Site.open("/var/lib/fieldpost/site")
id = site.notify.to("operators").send("Pump 3 stopped", "No flow since 08:14.")
print(site.notify.status(id).status)

site.external("erp").call("POST", "/orders", json={"part": "seal", "count": 2})
site.database("plant").write("add_count", {"unit": "pump-3", "count": 17})
"""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import InvalidInput
from fieldpost.core.sites.message import Category
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.tracking import Tracking
from fieldpost.site.cached import Caller, DatabaseConnection, ExternalSystem
from fieldpost.site.carriers.carrier import CallCarrier
from fieldpost.site.config.definitions import Database, External, find_definition
from fieldpost.site.config.folder import Folder, create_folder, read_folder
from fieldpost.site.notify import Notify
from fieldpost.site.provenance import provenance_context


class Site:
    """One site's folder, open for scripts. Safe to share among threads, and usable after a fork.

    Opening is cheap, and all that is open in one process shares one connection: open it where it is needed.
    """

    notify: Notify
    """Notifications: `site.notify.to(list_name).send(subject, body)`, `site.notify.status(id)`."""
    tracking: Tracking
    """What became of external calls and database writes: `site.tracking.status(id)`, always answered at the site."""

    def __init__(self, folder: Folder, clock: Clock) -> None:
        """Scripts use `Site.open`."""
        self._folder = folder
        self._clock = clock
        self._buffer = Buffer(folder.buffer_path, folder.buffer, folder.events)
        self.notify = Notify(self._buffer, folder.endpoint, clock)
        self.tracking = Tracking(self._buffer.read)
        self._external = Caller(self._buffer, Category.EXTERNAL_CALL, self._external_carrier, clock)
        self._database = Caller(self._buffer, Category.DATABASE_WRITE, self._database_carrier, clock)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, clock: Clock | None = None) -> "Site":
        """Open the site of this folder; its buffer is made if it is not there yet. No agent needs to run.

        Raises ConfigError when the folder is no site's or `site.toml` is wrong, Unavailable when the buffer cannot be
        opened.
        """
        return cls(read_folder(_path(folder)), clock or SystemClock())

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
        made = create_folder(_path(folder), name, central_url, token, Path(ca_file) if ca_file is not None else None)
        return cls(made, SystemClock())

    @property
    def name(self) -> str:
        """The site's name, as in `site.toml`. Central knows the site by its token."""
        return self._folder.name

    def external(self, system: str) -> ExternalSystem:
        """The external system of this name: `site.external("erp").call("POST", "/orders", json=…)`.

        Raises InvalidInput unless `site.toml` defines it as `[external.NAME]`.
        """
        return ExternalSystem(self._external, find_definition(self._folder.externals, system, External), self.name)

    def database(self, connection: str) -> DatabaseConnection:
        """The database connection of this name: `site.database("plant").write("add_count", {"unit": "pump-3"})`.

        Raises InvalidInput unless `site.toml` defines it as `[database.NAME]`.
        """
        return DatabaseConnection(
            self._database, find_definition(self._folder.databases, connection, Database), self.name
        )

    def context(
        self,
        *,
        instance: str | None = None,
        script: str | None = None,
        execution_id: str | None = None,
        parent_execution_id: str | None = None,
    ) -> AbstractContextManager[None]:
        """Say once where all that is sent within a `with` block comes from; what a call itself says wins.

        It holds for the thread or task that entered the block. Raises InvalidInput, on entering, for a bad text.
        """
        return provenance_context((instance, script, execution_id, parent_execution_id))

    def close(self) -> None:
        """Give back the buffer. Closing twice is fine; using the site afterwards raises Conflict."""
        self._external.close()
        self._database.close()
        self._buffer.close()

    def __enter__(self) -> "Site":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Site({self._folder.name!r}, {str(self._folder.path)!r})"

    # What only cached calls need is loaded with the first of them: a script that just notifies starts the faster.

    def _external_carrier(self) -> CallCarrier[External]:
        from fieldpost.site.carriers.http import ExternalCarrier

        return ExternalCarrier(self._clock, self._folder.outbound)

    def _database_carrier(self) -> CallCarrier[Database]:
        from fieldpost.site.carriers.database import DatabaseCarrier

        return DatabaseCarrier(self._clock, self._folder.outbound)


def _path(folder: object) -> Path:
    name = os.fspath(folder) if isinstance(folder, str | os.PathLike) else None
    if not isinstance(name, str) or "\x00" in name:
        raise InvalidInput("site.folder", "folder must be the path of a folder, as a str or Path", field="folder")
    return Path(name)
