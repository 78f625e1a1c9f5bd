"""Parser of HTTP/1.1 answers, with bounds.

Once the head of an answer is complete, its status is valid, even if the rest is not HTTP: a wrong Content-Length, a
broken chunk, or no end at all. A receiver that answered 200 has the request, and must not get it again and again
because of the rest. Only an answer whose end is beyond doubt leaves its connection fit for another request.
"""

import re
from collections.abc import Callable

from multidict import CIMultiDict

HEAD_BYTES_MAX = 64 * 1024
LINE_BYTES_MAX = 8 * 1024
"""Of a chunk size with its extensions, and of a trailer."""
INFORMATIONAL_MAX = 32
OVERHEAD_BYTES_MAX = 1024 * 1024
"""How many bytes may be received that are not part of the body: heads, chunk sizes and trailers."""
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_NO_BODY = (101, 204, 304)


class InvalidAnswer(Exception):
    """The bytes received are not the head of an HTTP answer."""


class AnswerParser:
    """The answer to one request: `feed` it the received bytes until `is_done`."""

    __slots__ = (
        "_body_max",
        "_buffer",
        "_has_body",
        "_informational",
        "_is_kept_open",
        "_left",
        "_overhead",
        "_parse",
        "_searched",
        "body",
        "headers",
        "is_done",
        "is_reusable",
        "is_whole",
        "status",
    )

    def __init__(self, body_max: int, *, has_body: bool = True) -> None:
        self.status: int | None = None
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.body = bytearray()
        self.is_done = False
        self.is_whole = False
        """False if the body was cut off at the limit or by the server."""
        self.is_reusable = False
        """Whether the next answer may come over the same connection."""
        self._body_max = body_max
        self._has_body = has_body
        self._buffer = b""
        self._searched = 0
        self._informational = 0
        self._overhead = 0
        self._left = 0
        self._is_kept_open = False
        self._parse: Callable[[], bool] = self._parse_head

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises InvalidAnswer while the status is not known."""
        self._buffer = self._buffer + data if self._buffer else data
        self._overhead += len(data)
        while not self.is_done and self._parse():
            pass
        if self.is_done:
            # Bytes behind an answer must not be read as the answer to the next request.
            self.is_reusable = self.is_reusable and not self._buffer
        elif self._overhead > OVERHEAD_BYTES_MAX:
            self._end(is_whole=False)

    def feed_eof(self) -> None:
        """The server has closed the connection."""
        if self.status is not None and not self.is_done:
            # Both methods are bound again at each access, so `is` would always be false.
            self._end(is_whole=self._parse == self._parse_until_close)
        self.is_reusable = False

    def _parse_head(self) -> bool:
        buffer = self._buffer
        if not buffer.startswith(b"HTTP/"[: len(buffer)]):
            raise InvalidAnswer("it does not begin with HTTP/")
        end = _END_OF_HEAD.search(buffer, self._searched)
        if end is None or end.start() > HEAD_BYTES_MAX:
            if len(buffer) > HEAD_BYTES_MAX:
                raise InvalidAnswer(f"its head has more than {HEAD_BYTES_MAX} bytes")
            self._searched = max(0, len(buffer) - 3)
            return False
        status_line, *lines = buffer[: end.start()].split(b"\n")
        self._buffer, self._searched = buffer[end.end() :], 0
        found = _STATUS_LINE.fullmatch(status_line.rstrip(b"\r"))
        if found is None:
            raise InvalidAnswer("its status line is not that of HTTP/1.1")
        status = int(found[2])
        if status < 200 and status != 101:
            self._informational += 1
            if self._informational > INFORMATIONAL_MAX:
                raise InvalidAnswer(f"more than {INFORMATIONAL_MAX} informational answers")
            return bool(self._buffer)
        self.status = status
        for line in lines:
            name, colon, value = line.partition(b":")
            if colon:
                self.headers.add(name.decode("utf-8", "replace"), value.strip().decode("utf-8", "replace"))
        self._is_kept_open = found[1] == b"1" and "close" not in self.headers.get("Connection", "").lower()
        self._frame_body(status)
        return not self.is_done

    def _frame_body(self, status: int) -> None:
        """How the body ends (RFC 9112, 6.3)."""
        lengths = set(self.headers.getall("Content-Length", ()))
        encoding = self.headers.get("Transfer-Encoding")
        if not self._has_body or status in _NO_BODY:
            self._is_kept_open = self._is_kept_open and status != 101
            self._end(is_whole=True)
        elif encoding is not None:
            self._is_kept_open = self._is_kept_open and not lengths
            self._parse = self._parse_chunk_size if encoding.lower() == "chunked" else self._parse_until_close
        elif not lengths:
            self._parse = self._parse_until_close
        elif len(lengths) == 1 and _LENGTH.fullmatch(length := lengths.pop()):
            self._left = int(length)
            self._parse = self._parse_length
        else:
            self._end(is_whole=False)

    def _parse_length(self) -> bool:
        self._take()
        if not self._left:
            self._end(is_whole=True)
        return False

    def _parse_until_close(self) -> bool:
        self._left = len(self._buffer)
        self._take()
        return False

    def _parse_chunk_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            self._end(is_whole=False)
            return False
        self._left = int(found[1], 16)
        self._parse = self._parse_chunk if self._left else self._parse_trailer
        return True

    def _parse_chunk(self) -> bool:
        self._take()
        if self._left:
            return False
        self._parse = self._parse_chunk_end
        return True

    def _parse_chunk_end(self) -> bool:
        line = self._line()
        if line:
            self._end(is_whole=False)
        self._parse = self._parse_chunk_size if line is not None else self._parse_chunk_end
        return line is not None

    def _parse_trailer(self) -> bool:
        line = self._line()
        if line == b"":
            self._end(is_whole=True)
        return bool(line)

    def _take(self) -> None:
        """Move the part of the buffer that belongs to the body."""
        taken = self._buffer[: self._left]
        self._buffer = self._buffer[self._left :]
        self._left -= len(taken)
        self._overhead -= len(taken)
        self.body += taken
        if len(self.body) > self._body_max:
            del self.body[self._body_max :]
            self._end(is_whole=False)

    def _line(self) -> bytes | None:
        """The next line; None if it is not complete, or too long, which ends the answer."""
        line, end, rest = self._buffer.partition(b"\n")
        if len(line) > LINE_BYTES_MAX:
            self._end(is_whole=False)
            return None
        if not end:
            return None
        self._buffer = rest
        return line.rstrip(b"\r")

    def _end(self, *, is_whole: bool) -> None:
        if not self.is_done:
            self.is_done, self.is_whole = True, is_whole
            self.is_reusable = is_whole and self._is_kept_open
