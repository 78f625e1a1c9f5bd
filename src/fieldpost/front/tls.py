"""The TLS certificate of central, reloaded when its files change and on SIGHUP.

The process uses one SSL context throughout; open connections keep their certificate. New files are loaded into a trial
context first. If certificate and key do not match, for example while they are being replaced, the previous certificate
stays in use.
"""

import asyncio
import os
import signal
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import ConfigError
from fieldpost.front.options import FrontOptions

CHECK_S = 10.0

log = structlog.get_logger()


class Certificate:
    """A certificate and its key in files. Raises ConfigError if they are unusable at start."""

    def __init__(self, options: FrontOptions) -> None:
        self._cert = Path(options.tls_cert)
        self._key = Path(options.tls_key) if options.tls_key else None
        try:
            self.context = self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError("tls.unusable", f"front.tls_cert: {_reason(error)}", field="front.tls_cert") from None
        self._seen = self._file_states()

    async def watch(self, clock: Clock) -> None:
        """Reload the files whenever they change, until cancelled."""
        requested = asyncio.Event()
        loop = asyncio.get_running_loop()
        # Windows has no SIGHUP; the files are still checked.
        with suppress(NotImplementedError, AttributeError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGHUP, requested.set)
        try:
            while True:
                await _first(requested.wait(), clock.sleep(CHECK_S))
                self.renew(is_requested=requested.is_set())
                requested.clear()
        finally:
            with suppress(NotImplementedError, AttributeError, RuntimeError, ValueError):
                loop.remove_signal_handler(signal.SIGHUP)

    def renew(self, *, is_requested: bool = False) -> bool:
        """Reload the files if they changed or it was requested; returns whether the new certificate is in use."""
        found = self._file_states()
        if found == self._seen and not is_requested:
            return False
        try:
            self._load()
            self._load_into(self.context)
        except (OSError, ssl.SSLError, ValueError) as error:
            log.error("certificate.refused", file=str(self._cert), error=_reason(error))
            return False
        self._seen = found
        log.info("certificate.renewed", file=str(self._cert))
        return True

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self._load_into(context)
        return context

    def _load_into(self, context: ssl.SSLContext) -> None:
        # A service cannot ask for a passphrase.
        context.load_cert_chain(self._cert, self._key, password=_no_passphrase)

    def _file_states(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_state(path) for path in (self._cert, self._key) if path is not None)


async def _first(*awaited: Coroutine[Any, Any, object]) -> None:
    """Wait until one of these is done, and cancel the others."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase; central needs a key without one")


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"certificate and key cannot be used ({error.reason or error})"
    if isinstance(error, OSError):
        return f"{error.filename or 'the file'} cannot be read: {error.strerror or error}"
    return str(error)
