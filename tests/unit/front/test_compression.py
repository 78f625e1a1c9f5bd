"""What makes pages smaller on their way, and what keeps their length from telling."""

import gzip as standard
import re

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, StreamingResponse

from fieldpost.front.console.kit.compression import BLUR_BYTES_MAX, compress, gzip, takes_gzip
from fieldpost.front.console.kit.forms import form_token
from fieldpost.front.console.kit.static_files import StaticFiles

PAGE = "<p>Pump 3 is hot</p>" * 400


def ask(scheme: str = "https", **headers: str) -> Request:
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "scheme": scheme, "server": ("127.0.0.1", 443), "path": "/", "query_string": b""}
    return Request(scope | {"method": "GET", "headers": given})


@pytest.mark.parametrize("blur", [b"", bytes(range(63))])
def test_output_is_gzip_and_excludes_the_random_padding(blur: bytes) -> None:
    packed = gzip(PAGE.encode(), blur)
    assert standard.decompress(packed) == PAGE.encode()
    assert len(packed) == len(gzip(PAGE.encode())) + len(blur)


@pytest.mark.parametrize(
    ("request_", "is_smaller"),
    [
        (ask(accept_encoding="gzip, deflate, br", sec_fetch_site="same-origin"), True),
        (ask(accept_encoding="gzip", sec_fetch_site="none"), True),
        (ask("http", accept_encoding="gzip"), True),
        (ask(accept_encoding="gzip", sec_fetch_site="cross-site"), False),
        (ask(accept_encoding="gzip", sec_fetch_site="same-site"), False),
        (ask(accept_encoding="gzip"), False),
        (ask(accept_encoding="gzip;q=0, br", sec_fetch_site="none"), False),
        (ask(sec_fetch_site="none"), False),
    ],
)
def test_page_is_compressed_only_for_requests_not_started_by_another_site(request_: Request, is_smaller: bool) -> None:
    response = compress(request_, HTMLResponse(PAGE))
    assert (response.headers.get("content-encoding") == "gzip") is is_smaller
    assert response.headers["content-length"] == str(len(response.body))
    body = standard.decompress(response.body) if is_smaller else response.body
    assert body == PAGE.encode()


def test_compressed_length_of_the_same_page_varies() -> None:
    request = ask(accept_encoding="gzip", sec_fetch_site="same-origin")
    lengths = {len(compress(request, HTMLResponse(PAGE)).body) for _ in range(200)}
    assert len(lengths) > BLUR_BYTES_MAX // 2
    assert max(lengths) - min(lengths) < BLUR_BYTES_MAX


def test_stream_is_not_compressed() -> None:
    stream = StreamingResponse(iter([b"event: sites\n\n"]), media_type="text/event-stream")
    assert "content-encoding" not in compress(ask("http", accept_encoding="gzip"), stream).headers


@pytest.mark.parametrize(
    ("offered", "is_taken"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("gzip; q=0", False), ("br", False), ("", False), ("gzipped", False)],
)
def test_gzip_is_sent_only_to_clients_that_accept_it(offered: str, is_taken: bool) -> None:
    assert takes_gzip({"accept-encoding": offered}) is is_taken


def test_form_token_is_different_each_time() -> None:
    tokens = {form_token("the cookie") for _ in range(50)}
    assert len(tokens) == 50
    assert all(re.fullmatch("[0-9a-f]{64}", token) for token in tokens)
    # No part of it repeats either: each half is as good as chance without the other.
    assert len({token[:8] for token in tokens}) == len({token[32:40] for token in tokens}) == 50


def test_files_are_compressed_once_and_only_where_it_helps() -> None:
    files = StaticFiles()
    script = files.response("vendor/htmx.min.js", None, gzip=True)
    whole = files.response("vendor/htmx.min.js", None)
    assert script is not None
    assert whole is not None
    assert script.headers["content-encoding"] == "gzip"
    assert script.headers["vary"] == "Accept-Encoding"
    assert standard.decompress(script.body) == whole.body
    assert len(script.body) < 0.4 * len(whole.body)
