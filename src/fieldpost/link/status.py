"""Asking central for one notification's record, synchronously, for scripts that have no event loop.

The whole question has one deadline, name resolution and a dripping answer included. Neither can be interrupted from
outside, so it runs in a thread of its own that is left behind when the deadline comes. Of several addresses the one
that answered last is asked first, and each but the last one has half of the time that is left.
"""

import http.client
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

from fieldpost.core.errors import InvalidInput, NotFound, Unavailable
from fieldpost.link.addresses import Addresses
from fieldpost.link.codec import decode_as
from fieldpost.link.endpoint import STATUS_PATH, Endpoint, denied
from fieldpost.link.messages import StatusAnswer

DEADLINE_S = 10.0
ANSWER_BYTES_MAX = 64 * 1024
TIMEOUT = "link.timeout"


def ask_status(endpoint: Endpoint, notification_id: str, deadline_s: float = DEADLINE_S) -> StatusAnswer:
    """Central's record. Raises NotFound, Denied, or Unavailable when central gave no usable answer in time."""
    status, body = _ask_any(endpoint, STATUS_PATH + notification_id, deadline_s)
    match status:
        case 200:
            pass
        case 404:
            raise NotFound("notification.unknown", "central has no such notification of this site")
        case 401 | 403:
            raise denied(status)
        case _:
            raise Unavailable("link.unusable", f"central answered with HTTP {status}")
    try:
        return decode_as(body, StatusAnswer)
    except InvalidInput as error:
        raise Unavailable("link.unusable", f"central's answer cannot be read: {error.message}") from error


_addresses = Addresses()
"""Shared by all that ask in this process; a wrong first guess costs time and nothing else."""


def _ask_any(endpoint: Endpoint, path: str, deadline_s: float) -> tuple[int, bytes]:
    ordered = _addresses.ordered(endpoint)
    for place, one in enumerate(ordered):
        is_last = place == len(ordered) - 1
        share_s = deadline_s if is_last else deadline_s / 2
        try:
            answer = _Question(one, path, share_s).ask()
        except Unavailable as error:
            if is_last:
                raise
            if error.code == TIMEOUT:
                deadline_s -= share_s
        else:
            _addresses.prefer(one)
            return answer
    raise AssertionError("an endpoint has an address")


class _Question:
    """One GET in a thread of its own."""

    def __init__(self, endpoint: Endpoint, path: str, deadline_s: float) -> None:
        self._endpoint = endpoint
        self._path = path
        self._deadline_s = deadline_s
        self._connection = self._prepare()
        self._answer: tuple[int, bytes] | None = None
        self._error: Exception | None = None

    def ask(self) -> tuple[int, bytes]:
        thread = threading.Thread(target=self._run, name="fieldpost-status", daemon=True)
        thread.start()
        thread.join(self._deadline_s)
        if thread.is_alive():
            self._hang_up()
            raise Unavailable(TIMEOUT, f"central gave no answer within {self._deadline_s:g} s")
        if self._answer is None:
            raise Unavailable("link.unreachable", f"central cannot be reached: {self._error}") from self._error
        return self._answer

    def _prepare(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._endpoint.url)
        tls = self._endpoint.tls()
        assert parts.hostname is not None
        self._path = parts.path + self._path
        if tls is None:
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._deadline_s)
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=self._deadline_s, context=tls)

    def _run(self) -> None:
        try:
            headers = {"Authorization": self._endpoint.authorization, "Accept": "application/json"}
            self._connection.request("GET", self._path, headers=headers)
            response = self._connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX + 1)
            if len(body) > ANSWER_BYTES_MAX:
                raise OSError("the answer is too long")
            self._answer = response.status, body
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._error = error
        finally:
            self._connection.close()

    def _hang_up(self) -> None:
        sock = self._connection.sock
        if isinstance(sock, socket.socket):
            # It may have ended by itself in this very moment.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
