"""The layout of the buffer's file, its version, and the upgrade of older versions.

`PRAGMA user_version` holds the version of the layout. Each of `STEPS` brings the file from one version to the next;
a new file runs through all of them, an older one through those it lacks, in one transaction. So a new and an upgraded
file have the same tables by construction.

`PRAGMA application_id` marks the file as a buffer of a released layout. The layouts before the first release numbered
their versions 1 to 3 without it and are refused.
"""

from pathlib import Path

import apsw

from fieldpost.core.errors import ConfigError

APPLICATION_ID = 0x46504254
"""`FPBT` in ASCII."""

STEPS = [Path(__file__).with_name("schema.sql")]
"""The step at index N brings version N to N + 1; the first one creates the tables."""


def schema_version() -> int:
    """The version that this Fieldpost reads and writes."""
    return len(STEPS)


def ensure_schema(connection: apsw.Connection, path: Path) -> None:
    """Create the tables, or upgrade those of an older version. All or nothing.

    Raises ConfigError for a newer version and for a layout from before the first release.
    """
    if connection.pragma("user_version") != schema_version():
        _run_steps(connection)
    if (refusal := refusal_of(connection, path)) is not None:
        raise refusal


def refusal_of(connection: apsw.Connection, path: Path) -> ConfigError | None:
    """The error for a file with tables that this Fieldpost cannot use; None for a file it can use or upgrade."""
    version = connection.pragma("user_version")
    if version != 0 and connection.pragma("application_id") != APPLICATION_ID:
        return ConfigError(
            "buffer.unreleased",
            f"the folder {path.parent} has a buffer of the unreleased layout {version}, and this Fieldpost uses layout "
            f"{schema_version()}: start with a new folder",
        )
    return newer(path, version) if version > schema_version() else None


def newer(path: Path, version: int) -> ConfigError:
    """The error for a buffer that a newer Fieldpost has upgraded, perhaps while this process had it open."""
    return ConfigError(
        "buffer.newer",
        f"{path} has schema version {version}, this Fieldpost knows up to {schema_version()}",
        hint="a newer Fieldpost has upgraded it: restart this script or agent with that one",
    )


def _run_steps(connection: apsw.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    # Read again under the lock: another process may have run the steps meanwhile.
    version = connection.pragma("user_version")
    if version == 0:
        connection.pragma("application_id", APPLICATION_ID)
    if connection.pragma("application_id") == APPLICATION_ID and version < schema_version():
        for step in STEPS[version:]:
            connection.execute(step.read_text(encoding="utf-8"))
        connection.pragma("user_version", schema_version())
    connection.execute("COMMIT")
