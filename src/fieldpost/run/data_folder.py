"""Checks at a start that this process may use its data: a folder or file of another user is named with its owner.

SQLite and the operating system would report such a file late, in many places and without the owner.
"""

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.core.errors import ConfigError

DATABASE_SUFFIXES = ("", "-wal", "-shm", ".lock")


def check_central_folder(folder: Path, store_url: str) -> None:
    """Check central's folder and the files of an embedded store. Raises ConfigError; creates nothing."""
    check_access("central.folder", folder, [folder])
    check_database(store_url)


def check_database(store_url: str) -> None:
    """Check the files of an embedded store and the folder that holds them."""
    parsed = parse_url(store_url)
    if parsed.get_backend_name() == "sqlite":
        database = Path(parsed.database or "")
        files = [Path(f"{database}{suffix}") for suffix in DATABASE_SUFFIXES]
        check_access("central.folder", database.parent, [database.parent, *files])


def make_folder(code: str, folder: Path) -> None:
    """Create the folder and its parents. Raises ConfigError with this code."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(code, f"cannot create the folder {folder}: {error.strerror or error}") from None


def check_access(code: str, folder: Path, paths: Iterable[Path]) -> None:
    """Check that this process can write to these paths in the folder, as far as they exist; ConfigError otherwise."""
    for path in paths:
        found = _existing(path)
        if os.access(found, os.R_OK | os.W_OK | (os.X_OK if found.is_dir() else 0)):
            continue
        owner, user = _owner(found), _user_name(os.geteuid()) if sys.platform != "win32" else "this user"
        # A parent in which the folder would be created is not ours to hand over.
        is_ours = found == path and owner != user
        chown = f"hand it over with `sudo chown -R {user} {shlex.quote(str(folder))}`, or " if is_ours else ""
        raise ConfigError(
            code,
            f"cannot write to {found}: it belongs to {owner} (mode {found.stat().st_mode & 0o7777:04o}), and this"
            f" process runs as {user}",
            hint=f"{chown}give --folder a folder that {user} can write to",
        )


def _existing(path: Path) -> Path:
    """The path, or its nearest existing parent; a folder that cannot be entered hides its content."""
    for place in (path, *path.absolute().parents):
        if os.path.exists(place):
            return place
    return path


def _owner(path: Path) -> str:
    return _user_name(path.stat().st_uid) if sys.platform != "win32" else "another user"


if sys.platform != "win32":
    import pwd

    def _user_name(uid: int) -> str:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)
