"""The parser of HTTP answers, fed whole and byte by byte."""

import pytest

from fieldpost.outbound.answer_parser import (
    HEAD_BYTES_MAX,
    INFORMATIONAL_MAX,
    LINE_BYTES_MAX,
    AnswerParser,
    InvalidAnswer,
)

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def parse(received: bytes, size: int = 1_000_000, *, body_max: int = 1000, has_body: bool = True) -> AnswerParser:
    parser = AnswerParser(body_max, has_body=has_body)
    for start in range(0, len(received), size):
        if not parser.is_done:
            parser.feed(received[start : start + size])
    return parser


def seen(parser: AnswerParser) -> tuple[int | None, bytes, bool, bool, bool]:
    return parser.status, bytes(parser.body), parser.is_done, parser.is_whole, parser.is_reusable


@pytest.mark.parametrize("size", [1_000_000, 1])
@pytest.mark.parametrize(
    ("received", "status", "body"),
    [
        (OK + b"Content-Length: 2\r\n\r\nok", 200, b"ok"),
        (OK + b"Content-Length: 0\r\n\r\n", 200, b""),
        (OK + b"content-length: 2\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304\r\n\r\n", 304, b""),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 200, b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n", 204, b""),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\n", 200, b"ok"),
        (CHUNKED + b"1;name=value\r\no\r\n01\r\nk\r\n000\r\nTrailer: x\r\n\r\n", 200, b"ok"),
    ],
)
def test_a_well_formed_answer_leaves_its_connection_to_the_next_request(
    received: bytes, status: int, body: bytes, size: int
) -> None:
    assert seen(parse(received, size)) == (status, body, True, True, True)


@pytest.mark.parametrize("size", [1_000_000, 1])
@pytest.mark.parametrize(
    ("received", "body", "is_whole"),
    [
        (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok", b"ok", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", True),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"", True),
        (OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok", True),
        (OK + b"Content-Length: -5\r\n\r\nok", b"", False),
        (OK + b"Content-Length: five\r\n\r\nok", b"", False),
        (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", b"", False),
        (CHUNKED + b"ok", b"", False),
        (CHUNKED + b"2\r\nokay\r\n", b"ok", False),
        (CHUNKED + b"-2\r\nok\r\n", b"", False),
        (CHUNKED + b"1;" + b"x" * LINE_BYTES_MAX, b"", False),
        (OK + b"Content-Length: 2000\r\n\r\n" + b"x" * 2000, b"x" * 1000, False),
        (CHUNKED + b"7d0\r\n" + b"x" * 2000, b"x" * 1000, False),
        (OK + b"\r\n" + b"x" * 2000, b"x" * 1000, False),
    ],
)
def test_connection_in_an_uncertain_state_is_not_reused(
    received: bytes, body: bytes, is_whole: bool, size: int
) -> None:
    parser = parse(received, size)
    if not parser.is_done:
        parser.feed(b"\r\n")
    assert seen(parser)[1:] == (body, True, is_whole, False)


def test_bytes_after_an_answer_are_not_another_answer() -> None:
    parser = parse(OK + b"Content-Length: 2\r\n\r\nokHTTP/1.1 410 Gone\r\n\r\n")
    assert seen(parser) == (200, b"ok", True, True, False)


def test_end_of_the_connection_ends_the_answer() -> None:
    for received, body, is_whole in [
        (OK + b"\r\nall", b"all", True),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\nall", b"all", True),
        (OK + b"Content-Length: 20\r\n\r\nhalf", b"half", False),
        (CHUNKED + b"14\r\nhalf", b"half", False),
        (CHUNKED + b"4\r\nhalf\r\n", b"half", False),
    ]:
        parser = parse(received)
        assert not parser.is_done
        parser.feed_eof()
        assert seen(parser) == (200, body, True, is_whole, False)


@pytest.mark.parametrize("received", [b"", b"HT", b"HTTP/1.1 200 OK\r\nA: b\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_without_a_complete_head_there_is_no_status(received: bytes) -> None:
    parser = parse(received)
    parser.feed_eof()
    assert seen(parser) == (None, b"", False, False, False)


@pytest.mark.parametrize(
    "received",
    [
        b"220 mail.example ESMTP\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 No\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        OK + b"X: " + b"x" * HEAD_BYTES_MAX,
        b"HTTP/1.1 100 Continue\r\n\r\n" * (INFORMATIONAL_MAX + 1),
    ],
)
def test_invalid_bytes_are_detected_at_once(received: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        parse(received)


def test_the_answer_to_head_has_no_body() -> None:
    assert seen(parse(OK + b"Content-Length: 20\r\n\r\n", has_body=False)) == (200, b"", True, True, True)


def test_headers_are_found_in_any_case_and_lines_without_a_colon_are_skipped() -> None:
    headers = parse(OK + b"retry-AFTER:  7 \r\nno header\r\nX-Bytes: \xff\r\nContent-Length: 0\r\n\r\n").headers
    assert headers["Retry-After"] == "7"
    assert headers["x-bytes"] == "\ufffd"
    assert len(headers) == 3
