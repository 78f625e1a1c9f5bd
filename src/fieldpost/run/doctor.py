"""The checks of `fieldpost doctor` on a machine that runs central: settings, disk, store, clock, schema, nodes, leader.

The doctor changes nothing. It does not open an embedded store that a running central holds; it asks that central.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from sqlalchemy import Connection

from fieldpost.central.secrets.key_files import read_keys
from fieldpost.central.store.engine.database_url import open_store, parse_url
from fieldpost.central.store.engine.lock import StoreLock
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.schema.migrate import schema_of
from fieldpost.central.watch.audit_verification import AuditVerifier
from fieldpost.central.watch.health import leader_check, migrations_check
from fieldpost.central.watch.issues import lost_nodes
from fieldpost.central.watch.nodes import Centre, NodeState, read_nodes
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.checks import Check, CheckVerdict, Diagnosis, folder_access_check, free_space_check
from fieldpost.core.errors import ConfigError, Conflict, FieldpostError
from fieldpost.link.endpoint import is_plain
from fieldpost.run.exposure import exposure_check
from fieldpost.run.settings import CentralSettings
from fieldpost.system_error import reason_of

CLOCK_WARNING = timedelta(seconds=5)
ASK_S = 5.0
TOKEN_FILE = "api-token"
"""The file of the first API token, in central's folder."""
AUDIT_BATCHES = 20
"""How many of the newest batches of audit entries are verified."""


async def examine(settings: CentralSettings, clock: Clock | None = None, *, file: Path | None = None) -> Diagnosis:
    """Run all checks; one that cannot run is a failed check, not an error. `file` holds the settings."""
    exposed = exposure_check(file)
    found = await _examine(settings, clock or SystemClock())
    return Diagnosis((*([exposed] if exposed else []), *_folder_checks(settings), *_tls_checks(settings), *found))


async def _examine(settings: CentralSettings, clock: Clock) -> list[Check]:
    url = settings.central.store_url
    parsed = parse_url(url)
    is_embedded = parsed.get_backend_name() == "sqlite"
    database = Path(parsed.database or "") if is_embedded else None
    disk = disk_check(database.parent if database else Path(settings.central.folder))
    if database is not None and not database.exists():
        missing = f"no database at {database}: `fieldpost central` creates it at its first start"
        return [disk, Check("store", CheckVerdict.FAILING, missing)]
    try:
        with StoreLock(url):
            return [disk, *await _of_store(settings, url, is_embedded, clock)]
    except Conflict as held:
        token = _token_in(Path(settings.central.folder) / TOKEN_FILE)
        answered = await asyncio.to_thread(_readiness_of, settings.central.host, settings.central.port, token)
        return [disk, Check("store", CheckVerdict.OK, f"{held.message}; these are its own checks"), *answered]


def _tls_checks(settings: CentralSettings) -> Iterator[Check]:
    """Warn of a central that other machines reach without TLS; a trusted proxy may provide it."""
    host = settings.central.host
    if is_plain(f"http://[{host}]" if ":" in host else f"http://{host}") and not (
        settings.front.has_tls or settings.front.trusted_proxies
    ):
        detail = f"central listens on {host} without TLS: others on the network can read tokens and notifications"
        yield Check("plain", CheckVerdict.WARNING, f"{detail}; set front.tls_cert and front.tls_key")


def _folder_checks(settings: CentralSettings) -> Iterator[Check]:
    """Warn of folders with central's files that every user of the machine can open."""
    url = parse_url(settings.central.store_url)
    embedded = {Path(url.database or "").parent} if url.get_backend_name() == "sqlite" else set()
    for folder in sorted({Path(settings.central.folder), *embedded}):
        if os.name != "posix" or not folder.is_dir():
            continue
        if check := folder_access_check(folder.stat().st_mode, str(folder)):
            yield check


async def _of_store(settings: CentralSettings, url: str, is_embedded: bool, clock: Clock) -> list[Check]:
    store = open_store(url, clock if is_embedded else None)
    try:
        found = [await _clock_check(store, is_embedded, clock)]
        found += await store.read(_stored, store)
        if all(check.verdict is not CheckVerdict.FAILING for check in found):
            found.append(await _audit_check(settings, store))
    except FieldpostError as error:
        return [Check("store", CheckVerdict.FAILING, error.message)]
    finally:
        await store.close()
    kind = "SQLite" if is_embedded else "PostgreSQL"
    return [Check("store", CheckVerdict.OK, f"the {kind} store answers"), *found]


def _stored(conn: Connection, store: Store) -> list[Check]:
    schema = schema_of(conn)
    checks = [migrations_check(schema)]
    if schema.current is not None:
        checks += _node_checks(read_nodes(conn, now=store.now()))
    return checks


def _node_checks(centre: Centre) -> Iterator[Check]:
    running, lost = sum(node.state is NodeState.RUNNING for node in centre.nodes), len(lost_nodes(centre))
    detail = f"{running} running, {lost} lost"
    yield Check("nodes", CheckVerdict.WARNING if lost or not running else CheckVerdict.OK, detail)
    if running:
        yield leader_check(centre)


async def _audit_check(settings: CentralSettings, store: Store) -> Check:
    """Verify the newest audit entries against their seals."""
    try:
        keys = read_keys(settings.secrets, Path(settings.central.folder))
    except ConfigError as error:
        return Check("audit", CheckVerdict.OK, f"not verified: {error.message}")
    verifier = AuditVerifier(store, [key.public_key for key in keys], settings.upkeep.audit_retention)
    last = (await verifier.piece(2**62)).last_batch
    piece = await verifier.piece(max(1, last - AUDIT_BATCHES + 1))
    if piece.findings:
        detail = f"{piece.findings[0].text}; `fieldpost audit verify` checks the whole log"
        return Check("audit", CheckVerdict.FAILING, detail)
    return Check("audit", CheckVerdict.OK, f"the last {piece.entries} sealed entries are unchanged")


async def _clock_check(store: Store, is_embedded: bool, clock: Clock) -> Check:
    if is_embedded:
        return Check("clock", CheckVerdict.OK, "the store uses the clock of this machine")
    before = clock.now()
    theirs = await store.read(database_time, None)
    ours = before + (clock.now() - before) / 2
    return clock_check(ours - theirs)


def clock_check(ahead: timedelta) -> Check:
    """Leases and due times use the database's clock: a wrong clock here only affects logs and ids."""
    seconds = ahead.total_seconds()
    where = f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} the database's"
    detail = f"this machine's clock is {where if abs(seconds) >= 0.05 else 'that of the database'}"
    return Check("clock", CheckVerdict.WARNING if abs(ahead) > CLOCK_WARNING else CheckVerdict.OK, detail)


def disk_check(folder: Path) -> Check:
    """Free disk space in the folder of central's data."""
    place = next((p for p in (folder.absolute(), *folder.absolute().parents) if p.exists()), Path("/"))
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Check("disk", CheckVerdict.FAILING, f"cannot read the free space of {place}: {error.strerror or error}")
    return free_space_check(free, str(place))


def _token_in(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _readiness_of(host: str, port: int, token: str | None) -> list[Check]:
    """The readiness checks of the central at this address; with a token also their details."""
    connection = HTTPConnection(host, port, timeout=ASK_S)
    # The token never leaves this machine in clear text.
    headers = {"Authorization": f"Bearer {token}"} if token and not is_plain(f"http://{host}") else {}
    try:
        connection.request("GET", "/readyz", headers={"Accept": "application/json", **headers})
        answer = json.loads(connection.getresponse().read(65536))
        return [Check(f"central's {c['name']}", CheckVerdict(c["status"]), str(c["detail"])) for c in answer["checks"]]
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        return [Check("central", CheckVerdict.FAILING, f"no answer from {host} port {port}: {reason_of(error)}")]
    finally:
        connection.close()
