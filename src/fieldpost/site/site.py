"""The script API of a site.

from fieldpost import Site

site = Site.open("/var/lib/fieldpost/site")
id = site.notify.to("operators").send("Pump 3 stopped", "No flow since 08:14.")
print(site.notify.status(id).status)

site.external("erp").call("POST", "/orders", json={"part": "seal", "count": 2})
site.database("plant").write("add_count", {"unit": "pump-3", "count": 17})
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import InvalidInput
from fieldpost.core.sites.message import Category
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.tracking import Tracking
from fieldpost.site.config.database import Database
from fieldpost.site.config.definitions import find_definition
from fieldpost.site.config.external import External
from fieldpost.site.config.folder import Folder, create_folder, read_folder
from fieldpost.site.notify import Notify
from fieldpost.site.provenance import provenance_context

if TYPE_CHECKING:
    from fieldpost.site.cached import Caller, DatabaseConnection, ExternalSystem
    from fieldpost.site.carriers.carrier import CallCarrier


class Site:
    """One site's folder, open for scripts. Safe to share among threads, and usable after a fork.

    Opening is cheap, and all instances in one process share one connection: open it where it is needed.
    """

    notify: Notify
    """Notifications: `site.notify.to(list_name).send(subject, body)`, `site.notify.status(id)`."""
    tracking: Tracking
    """The status of external calls and database writes: `site.tracking.status(id)`. Does not need central."""

    def __init__(self, folder: Folder, clock: Clock) -> None:
        """Scripts use `Site.open`."""
        self._folder = folder
        self._clock = clock
        self._buffer = Buffer(folder.buffer_path, folder.buffer, folder.events)
        pair = folder.pair
        self.notify = Notify(self._buffer, folder.endpoint, clock, pair.notification_wait_ms)
        self.tracking = Tracking(self._buffer.read)
        self._callers: dict[Category, Caller[Any]] = {}

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, clock: Clock | None = None) -> "Site":
        """Open the site of this folder and create its buffer if necessary. No agent needs to run.

        Raises ConfigError if the folder is not a site's or `site.toml` is invalid, and Unavailable if the buffer cannot
        be opened.
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
        allow_plain: bool = False,
    ) -> "Site":
        """Create a site's folder (`site.toml`, `token` with mode 0600, `buffer.db`) and open it.

        `allow_plain` permits plain HTTP to another machine, where others can read the token.

        Raises InvalidInput or ConfigError for an invalid name, URL or token, and Conflict if the folder is already a
        site's.
        """
        ca_path = Path(ca_file) if ca_file is not None else None
        made = create_folder(_path(folder), name, central_url, token, ca_path, allow_plain=allow_plain)
        return cls(made, SystemClock())

    @property
    def name(self) -> str:
        """The site's name, as in `site.toml`. Central knows the site by its token."""
        return self._folder.name

    def external(self, system: str) -> "ExternalSystem":
        """The external system of this name: `site.external("erp").call("POST", "/orders", json=…)`.

        Raises InvalidInput unless `site.toml` defines it as `[external.NAME]`.
        """
        from fieldpost.site.cached import ExternalSystem

        definition = find_definition(self._folder.externals, system, External)
        wait_ms = self._folder.pair.external_call_wait_ms
        caller = self._caller(Category.EXTERNAL_CALL, self._external_carrier, wait_ms)
        return ExternalSystem(caller, definition, self.name)

    def database(self, connection: str) -> "DatabaseConnection":
        """The database connection of this name: `site.database("plant").write("add_count", {"unit": "pump-3"})`.

        Raises InvalidInput unless `site.toml` defines it as `[database.NAME]`.
        """
        from fieldpost.site.cached import DatabaseConnection

        definition = find_definition(self._folder.databases, connection, Database)
        wait_ms = self._folder.pair.database_write_wait_ms
        caller = self._caller(Category.DATABASE_WRITE, self._database_carrier, wait_ms)
        return DatabaseConnection(caller, definition, self.name)

    def context(
        self,
        *,
        instance: str | None = None,
        script: str | None = None,
        execution_id: str | None = None,
        parent_execution_id: str | None = None,
    ) -> AbstractContextManager[None]:
        """Set the provenance of everything sent within a `with` block; arguments of a call take precedence.

        Applies to the thread or task that entered the block. Entering raises InvalidInput for an invalid text.
        """
        return provenance_context((instance, script, execution_id, parent_execution_id))

    def close(self) -> None:
        """Close the site. Closing twice is allowed; using the site afterwards raises Conflict."""
        for caller in list(self._callers.values()):
            caller.close()
        self._buffer.close()

    def __enter__(self) -> "Site":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Site({self._folder.name!r}, {str(self._folder.path)!r})"

    # Loaded with the first cached call, because they load asyncio: a script that only sends starts in half the time.

    def _caller(
        self, category: Category, make_carrier: "Callable[[], CallCarrier[Any]]", wait_ms: int
    ) -> "Caller[Any]":
        from fieldpost.site.cached import Caller

        if category not in self._callers:
            made = Caller(self._buffer, category, make_carrier, self._clock, wait_ms)
            self._callers.setdefault(category, made)  # another thread may have been faster
        return self._callers[category]

    def _external_carrier(self) -> "CallCarrier[External]":
        from fieldpost.site.carriers.http import ExternalCarrier

        return ExternalCarrier(self._clock, self._folder.outbound)

    def _database_carrier(self) -> "CallCarrier[Database]":
        from fieldpost.site.carriers.database import DatabaseCarrier

        return DatabaseCarrier(self._clock, self._folder.outbound)


def _path(folder: object) -> Path:
    name = os.fspath(folder) if isinstance(folder, str | os.PathLike) else None
    if not isinstance(name, str) or "\x00" in name:
        raise InvalidInput("site.folder", "folder must be the path of a folder, as a str or Path", field="folder")
    return Path(name)
