"""Blocking query for the status of a notification at central, for scripts without an event loop.

The query has one deadline, including name resolution and a slowly dripping answer. Neither can be interrupted, so the
query runs in its own thread, which is abandoned at the deadline. Of several addresses, the one that answered last is
queried first, and each one but the last gets half of the remaining time.
"""

import socket
import threading
from contextlib import suppress
from http.client import HTTPException

from fieldpost.core.errors import InvalidInput, NotFound, Unavailable
from fieldpost.link.addresses import Addresses
from fieldpost.link.codec import decode_as
from fieldpost.link.endpoint import STATUS_PATH, Endpoint, denied
from fieldpost.link.http.client import open_connection, read_bounded, send_request
from fieldpost.link.messages import StatusAnswer

DEADLINE_S = 10.0
ANSWER_BYTES_MAX = 64 * 1024
TIMEOUT = "link.timeout"


def ask_status(endpoint: Endpoint, notification_id: str, deadline_s: float = DEADLINE_S) -> StatusAnswer:
    """Central's record. Raises NotFound, Denied, or Unavailable when central gave no usable answer in time."""
    status, body = _query_any(endpoint, STATUS_PATH + notification_id, deadline_s)
    match status:
        case 200:
            pass
        case 404:
            raise NotFound("notification.unknown", "central does not know this notification of this site")
        case 401 | 403:
            raise denied(status)
        case _:
            raise Unavailable("link.unusable", f"central answered with HTTP {status}")
    try:
        return decode_as(body, StatusAnswer)
    except InvalidInput as error:
        raise Unavailable("link.unusable", f"central's answer is invalid: {error.message}") from error


_addresses = Addresses()
"""Shared by all queries of this process; a wrong first choice only costs time."""


def _query_any(endpoint: Endpoint, path: str, deadline_s: float) -> tuple[int, bytes]:
    ordered = _addresses.ordered(endpoint)
    for place, one in enumerate(ordered):
        is_last = place == len(ordered) - 1
        share_s = deadline_s if is_last else deadline_s / 2
        try:
            answer = _StatusQuery(one, path, share_s).run()
        except Unavailable as error:
            if is_last:
                raise
            if error.code == TIMEOUT:
                deadline_s -= share_s
        else:
            _addresses.prefer(one)
            return answer
    raise AssertionError("an endpoint has an address")


class _StatusQuery:
    """One GET in its own thread."""

    def __init__(self, endpoint: Endpoint, path: str, deadline_s: float) -> None:
        self._endpoint = endpoint
        self._path = path
        self._deadline_s = deadline_s
        self._connection = open_connection(endpoint, deadline_s)
        self._answer: tuple[int, bytes] | None = None
        self._error: Exception | None = None

    def run(self) -> tuple[int, bytes]:
        thread = threading.Thread(target=self._request, name="fieldpost-status", daemon=True)
        thread.start()
        thread.join(self._deadline_s)
        if thread.is_alive():
            self._hang_up()
            raise Unavailable(TIMEOUT, f"central did not answer within {self._deadline_s:g} s")
        if self._answer is None:
            raise Unavailable("link.unreachable", f"central cannot be reached: {self._error}") from self._error
        return self._answer

    def _request(self) -> None:
        try:
            response = send_request(self._connection, self._endpoint, "GET", self._path)
            self._answer = response.status, read_bounded(response, ANSWER_BYTES_MAX)
        except (OSError, HTTPException, ValueError) as error:
            self._error = error
        finally:
            self._connection.close()

    def _hang_up(self) -> None:
        sock = self._connection.sock
        if isinstance(sock, socket.socket):
            # The peer may have closed it at the same moment.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
