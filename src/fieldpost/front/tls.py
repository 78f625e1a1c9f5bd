"""The certificate that central serves HTTPS with. It is read again when its files change, and at SIGHUP.

The context stays the same for the whole life of the process; connections that are open keep what they began with. Files
that do not fit together, as while they are being replaced, are refused by a trial context first, and the certificate
from before stays in use until they do.
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

LOOK_S = 10.0

log = structlog.get_logger()


class Certificate:
    """Certificate and key in files. Raises ConfigError when they cannot be used at the start."""

    def __init__(self, options: FrontOptions) -> None:
        self._cert = Path(options.tls_cert)
        self._key = Path(options.tls_key) if options.tls_key else None
        try:
            self.context = self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError("tls.unusable", f"front.tls_cert: {_reason(error)}", field="front.tls_cert") from None
        self._seen = self._look()

    async def watch(self, clock: Clock) -> None:
        """Read it again whenever it changes, until cancelled."""
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        # Windows has no such signal; there the files are looked at all the same.
        with suppress(NotImplementedError, AttributeError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGHUP, asked.set)
        try:
            while True:
                await _first(asked.wait(), clock.sleep(LOOK_S))
                self.renew(is_asked=asked.is_set())
                asked.clear()
        finally:
            with suppress(NotImplementedError, AttributeError, RuntimeError, ValueError):
                loop.remove_signal_handler(signal.SIGHUP)

    def renew(self, *, is_asked: bool = False) -> bool:
        """Take the files as they are now, if they changed and are good; whether that was so."""
        found = self._look()
        if found == self._seen and not is_asked:
            return False
        try:
            self._load()
            self._into(self.context)
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
        self._into(context)
        return context

    def _into(self, context: ssl.SSLContext) -> None:
        # A key with a passphrase is refused: nobody sits at the terminal of a service.
        context.load_cert_chain(self._cert, self._key, password=_no_passphrase)

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_state(path) for path in (self._cert, self._key) if path is not None)


async def _first(*awaited: Coroutine[Any, Any, object]) -> None:
    """Until one of these is done; the others are given up."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted with a passphrase; central needs it without")


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
