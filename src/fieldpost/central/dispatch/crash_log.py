"""The trace that a process leaves when it crashes in a lone attempt.

A notification is parked for crashing its node only on proof. While a lone attempt runs, Python's fault handler is set
to write into a file of the node's folder, whose first line names the attempt. A crash (segmentation fault, abort, bus
error, illegal instruction) adds its reason before the process ends; a kill from outside or a power cut adds nothing.
The next start of the node reads the file and marks the attempt as crashed.

Limit: a process that ends by `os._exit` or is killed by the kernel for its memory leaves no trace. Its notification is
attempted alone again and again, in growing intervals, and the others are delivered in between.
"""

import contextlib
import faulthandler
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import structlog

from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import claims
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.errors import Unavailable

CRASH_FILE = "lone-attempt"

log = structlog.get_logger()


class CrashLog:
    """One for a node; without a path no crash is proven."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @contextlib.contextmanager
    def during(self, claimed: Claimed) -> Iterator[None]:
        """Have a crash within this block recorded for this attempt."""
        file = self._open(claimed)
        if file is None:
            yield
            return
        was_enabled = faulthandler.is_enabled()
        with file:
            faulthandler.enable(file, all_threads=False)
            try:
                yield
            finally:
                faulthandler.disable()
                if was_enabled and sys.__stderr__ is not None:
                    faulthandler.enable(sys.__stderr__)
        with contextlib.suppress(OSError):
            Path(file.name).unlink(missing_ok=True)

    def _open(self, claimed: Claimed) -> TextIO | None:
        """The file, with the attempt in its first line; None without a folder that can be written."""
        if self._path is None:
            return None
        try:
            file = self._path.open("w", encoding="utf-8")
            print(claimed.notification.notification_id, claimed.token, file=file, flush=True)
        except OSError as error:  # a full or read-only disk: the attempt goes on, and a crash stays without proof
            log.error("crash.not_recorded", error=error.strerror)
            return None
        return file

    async def record(self, store: Store) -> None:
        """Mark the attempt in which the last process of this node crashed, if it did."""
        try:
            lines = self._path.read_text("utf-8", "replace").splitlines() if self._path is not None else []
        except OSError:
            return
        if self._path is None or len(lines) < 2:
            return
        notification_id, _, token = lines[0].partition(" ")
        reason = lines[1].removeprefix("Fatal Python error: ") or "unknown reason"
        log.error("node.crashed", notification_id=notification_id, reason=reason)
        try:
            error = f"the process crashed: {reason}"
            await store.write(claims.mark_crashed, notification_id, int(token), error, now=store.now())
        except (Unavailable, ValueError) as failure:
            log.error("crash.not_recorded", error=str(failure))
            return
        self._path.unlink(missing_ok=True)
