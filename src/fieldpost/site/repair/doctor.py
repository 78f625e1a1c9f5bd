"""The checks of `fieldpost site doctor`: buffer and log, waiting messages, disk, agent, token and settings.

It changes nothing. If something cannot be checked, the check fails; that is not an error of the doctor.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw

from fieldpost.core.checks import Check, CheckVerdict, Diagnosis, folder_access_check, free_space_check
from fieldpost.core.errors import ConfigError, FieldpostError
from fieldpost.core.quantities import plural
from fieldpost.core.times import from_microseconds, to_text
from fieldpost.link.endpoint import Endpoint, is_plain
from fieldpost.site.buffer.agent_lock import running_agent
from fieldpost.site.buffer.connection import (
    emptied,
    is_damage,
    log_of,
    open_existing,
    refuse_old_sqlite,
    salvage_mark,
    storage_error,
)
from fieldpost.site.buffer.schema import refusal_of, schema_version
from fieldpost.site.config.folder import BUFFER_FILE, TOKEN_FILE, read_folder, read_token
from fieldpost.site.repair.damage import damage_of_log

LOG_WARNING_BYTES = 64 * 1024**2
"""A longer log means that checkpoints fail: a process keeps reading, or the disk is slow."""
OLD_WARNING = timedelta(days=1)
FINDINGS_MAX = 5
"""How many problems found by SQLite are shown; there may be thousands."""
REPAIR = "run `fieldpost site salvage`"

_COUNTS = """
SELECT category, status, count(*), min(created_at) FROM {table} WHERE status <> 'marker'
GROUP BY category, status ORDER BY 1, 2
"""
_REJECTED = "SELECT count(*) FROM rejected"
_CALLS = "SELECT status, count(*) FROM tracking GROUP BY status ORDER BY 1"
_EVENTS = "SELECT count(*) FROM events"


@dataclass(frozen=True, slots=True)
class Contents:
    """The number of messages and records in a buffer, by category and status."""

    messages: dict[str, dict[str, int]] = field(default_factory=dict)
    rejected: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    events: int = 0
    oldest_created_at: datetime | None = None

    @property
    def waiting(self) -> int:
        return sum(sum(by_status.values()) for by_status in self.messages.values())

    @property
    def parked(self) -> int:
        return sum(by_status.get("parked", 0) for by_status in self.messages.values())


@dataclass(frozen=True, slots=True)
class SiteDiagnosis:
    diagnosis: Diagnosis
    contents: Contents | None
    """None if the buffer cannot be read."""


def examine(folder: Path, now: datetime, *, is_quick: bool = False) -> SiteDiagnosis:
    """Run all checks. `is_quick` checks the buffer's pages but not whether its indexes match its tables."""
    path = folder / BUFFER_FILE
    token = _tried("token", lambda: read_token(folder / TOKEN_FILE), "the token exists and only its owner can read it")
    checks = [*_settings_checks(folder), token, _agent_check(folder), _disk_check(folder), *_folder_checks(folder)]
    buffer, contents = _check_buffer(path, now, is_quick)
    return SiteDiagnosis(Diagnosis((*checks, *buffer)), contents)


def _check_buffer(path: Path, now: datetime, is_quick: bool) -> tuple[list[Check], Contents | None]:
    if salvage_mark(path).exists():
        detail = f"a salvage is running or was interrupted: if none is running, {REPAIR} again"
        return [Check("buffer", CheckVerdict.FAILING, detail)], None
    how = emptied(path)
    if how is not None:
        # Not opened by SQLite, which would delete the log.
        return [Check("buffer", CheckVerdict.FAILING, f"{path} is damaged: {how}; {REPAIR}")], None
    if not path.exists():
        detail = "does not exist yet: it is created by the first send"
        return [Check("buffer", CheckVerdict.OK, detail)], Contents()
    # Check the log before opening the file: SQLite silently skips commits behind damage.
    checks = [*_access_checks(path), _log_check(log_of(path))]
    version = apsw.sqlite_lib_version()
    try:
        connection = open_existing(path)
        try:
            checks += [
                _tried("library", lambda: refuse_old_sqlite(version), f"SQLite {version}, apsw {apsw.apsw_version()}"),
                _schema_check(connection, path),
                _integrity_check(connection, path, is_quick),
            ]
            if checks[-2].verdict is CheckVerdict.FAILING:
                return checks, None
            contents = read_contents(connection)
            return [*checks, *_contents_checks(contents, now)], contents
        finally:
            connection.close(True)
    except (apsw.Error, FieldpostError) as error:
        reason = storage_error(error, path) if isinstance(error, apsw.Error) else error
        return [*checks, _failed("buffer", reason)], None


def read_contents(connection: apsw.Connection) -> Contents:
    """The contents of the buffer, from one snapshot."""
    messages: dict[str, dict[str, int]] = {}
    oldest: datetime | None = None
    connection.execute("BEGIN")
    try:
        for table in ("calls", "messages"):
            for category, status, count, created_at in _rows(connection, _COUNTS.format(table=table)):
                messages.setdefault(category, {})[status] = count
                created = from_microseconds(created_at)
                oldest = created if oldest is None else min(oldest, created)
        rejected = _rows(connection, _REJECTED)[0][0]
        calls = dict(_rows(connection, _CALLS))
        events = _rows(connection, _EVENTS)[0][0]
    finally:
        connection.execute("COMMIT")
    return Contents(messages, rejected, calls, events, oldest)


def _rows(connection: apsw.Connection, statement: str) -> list[tuple[Any, ...]]:
    return connection.execute(statement).fetchall()


def _contents_checks(contents: Contents, now: datetime) -> Iterator[Check]:
    parts = [
        f"{count} {category} {status}"
        for category, by_status in contents.messages.items()
        for status, count in by_status.items()
    ]
    detail = ", ".join(parts) or "no messages"
    is_old = contents.oldest_created_at is not None and now - contents.oldest_created_at > OLD_WARNING
    if contents.oldest_created_at is not None:
        detail += f"; the oldest was created at {to_text(contents.oldest_created_at)}"
    yield Check("messages", CheckVerdict.WARNING if is_old else CheckVerdict.OK, detail)
    if contents.parked:
        detail = f"{plural(contents.parked, 'parked call')} waiting for a person: see `fieldpost site parked`"
        yield Check("parked", CheckVerdict.WARNING, detail)
    if contents.rejected:
        detail = f"{plural(contents.rejected, 'notification')} refused by central: see `fieldpost site rejected`"
        yield Check("rejected", CheckVerdict.WARNING, detail)
    records = ", ".join(f"{count} {status}" for status, count in contents.calls.items())
    yield Check("calls", CheckVerdict.OK, f"{records or 'none'}; {plural(contents.events, 'event')} in the log")


def _integrity_check(connection: apsw.Connection, path: Path, is_quick: bool) -> Check:
    pragma = "quick_check" if is_quick else "integrity_check"
    try:
        found = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}({FINDINGS_MAX})")]
    except apsw.Error as error:
        if not is_damage(error):
            raise
        found = [str(error)]
    if found == ["ok"]:
        pages = connection.pragma("page_count") * connection.pragma("page_size")
        free = connection.pragma("freelist_count") * connection.pragma("page_size")
        detail = f"intact: {_size(pages)}, of which {_size(free)} are free ({pragma})"
        return Check("buffer", CheckVerdict.OK, detail)
    problems = "; ".join(line for text in found for line in text.splitlines())
    return Check("buffer", CheckVerdict.FAILING, f"{path} is damaged: {problems[:600]}; {REPAIR}")


def _access_checks(path: Path) -> Iterator[Check]:
    """Check access rights. Access for a group may be intended; access for every user hardly is."""
    if not os.access(path, os.R_OK | os.W_OK):
        yield Check("access", CheckVerdict.FAILING, f"this user cannot write to {path}: sending and forwarding fail")
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & stat.S_IRWXO:
        detail = f"every user of this machine can read {path} (mode {mode:04o}): chmod o= {path}*"
        yield Check("access", CheckVerdict.WARNING, detail)


def _folder_checks(folder: Path) -> Iterator[Check]:
    # A folder that does not exist has failed the check of its disk.
    if os.name == "posix" and folder.is_dir() and (check := folder_access_check(folder.stat().st_mode, str(folder))):
        yield check


def _log_check(log: Path) -> Check:
    try:
        size = log.stat().st_size
        damage = damage_of_log(log)
    except FileNotFoundError:
        return Check("log", CheckVerdict.OK, "no write-ahead log")
    except OSError as error:
        return Check("log", CheckVerdict.FAILING, f"{log} cannot be read: {error.strerror or error}")
    if damage is not None:
        return Check("log", CheckVerdict.FAILING, f"{damage}; {REPAIR}")
    is_long = size > LOG_WARNING_BYTES
    hint = "; `fieldpost site compact` empties it" if is_long else ""
    return Check("log", CheckVerdict.WARNING if is_long else CheckVerdict.OK, f"{_size(size)} of write-ahead log{hint}")


def _schema_check(connection: apsw.Connection, path: Path) -> Check:
    if (refusal := refusal_of(connection, path)) is not None:
        return _failed("schema", refusal)
    version = connection.pragma("user_version")
    detail = f"schema version {version}"
    if version == schema_version():
        return Check("schema", CheckVerdict.OK, detail)
    verdict = CheckVerdict.FAILING if version == 0 else CheckVerdict.WARNING
    return Check("schema", verdict, f"{detail}; it is upgraded to {schema_version()} when the buffer is next opened")


def _settings_checks(folder: Path) -> Iterator[Check]:
    try:
        found = read_folder(folder)
    except FieldpostError as error:
        yield _failed("settings", error)
        return
    yield Check("settings", CheckVerdict.OK, f"site {found.name}, central at {found.central_url}")
    for url in (found.central_url, *found.more_urls):
        if is_plain(url):
            detail = f"the token is sent to {url} over plain HTTP, where others can read it: use https://"
            yield Check("plain", CheckVerdict.WARNING if found.allow_plain else CheckVerdict.FAILING, detail)
    if found.ca_file is not None:
        detail = f"central's certificate is checked with {found.ca_file}"
        yield _tried("authority", Endpoint("https://central", "", found.ca_file).tls, detail)
    for definition in found.definitions:
        try:
            definition.check()
        except ConfigError as error:
            yield _failed(f"definition {definition.name}", error)


def _agent_check(folder: Path) -> Check:
    pid = running_agent(folder)
    if pid is None:
        return Check("agent", CheckVerdict.WARNING, "no agent is running, so messages wait: run `fieldpost site`")
    return Check("agent", CheckVerdict.OK, f"the agent is running as process {pid}")


def _disk_check(folder: Path) -> Check:
    try:
        return free_space_check(shutil.disk_usage(folder).free, str(folder))
    except OSError as error:
        return Check("disk", CheckVerdict.FAILING, f"{folder} cannot be read: {error.strerror or error}")


def _tried(name: str, work: Callable[[], object], detail: str) -> Check:
    """A check that passes, with this detail, unless the work raises an error."""
    try:
        work()
    except FieldpostError as error:
        return _failed(name, error)
    return Check(name, CheckVerdict.OK, detail)


def _failed(name: str, error: FieldpostError) -> Check:
    return Check(name, CheckVerdict.FAILING, str(error))


def _size(count: int) -> str:
    return f"{count / 1024**2:.1f} MiB" if count >= 1024**2 else f"{count / 1024:.0f} KiB"
