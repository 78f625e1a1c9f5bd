"""Data of a demo from before the first release: nothing upgrades it, so the demo offers to remove it."""

import shlex
import shutil
import sys
from pathlib import Path

from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.sqlite_store import sqlite_engine
from fieldpost.central.store.schema.migrate import schema_of
from fieldpost.core.errors import ConfigError
from fieldpost.demo.scenario import SITES
from fieldpost.file_lock import FileLock
from fieldpost.site.buffer.connection import is_unreleased_buffer
from fieldpost.site.config.folder import BUFFER_FILE


def offer_removal(folder: Path) -> None:
    """Ask on a terminal whether to remove the folder if its data is too old; ConfigError when it stays."""
    buffers = (folder / role.name / BUFFER_FILE for role in SITES)
    if not _is_unreleased(folder / "central" / "central.db") and not any(map(is_unreleased_buffer, buffers)):
        return
    is_interactive = sys.stdin.isatty() and sys.stdout.isatty()
    question = f"The demo's data in {folder} is from before the first release. Remove it and start again? [y/N] "
    if is_interactive and input(question).strip().lower() in ("y", "yes") and _remove(folder):
        return
    raise ConfigError(
        "demo.unreleased",
        f"the demo's data in {folder} is from before the first release and cannot be upgraded",
        hint=f"remove it with `rm -r {shlex.quote(str(folder))}`, or give --folder a new folder",
    )


def _is_unreleased(database: Path) -> bool:
    if not database.is_file():
        return False
    engine = sqlite_engine(parse_url(f"sqlite:///{database}"), is_reader=True)
    try:
        with engine.connect() as conn:
            return schema_of(conn).is_unreleased
    finally:
        engine.dispose()


def _remove(folder: Path) -> bool:
    """False while another demo runs in the folder."""
    lock = FileLock(folder / "demo.lock")
    if not lock.acquire():
        return False
    shutil.rmtree(folder)
    lock.release()
    return True
