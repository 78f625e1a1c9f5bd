"""Compression of pages and files without leaking secrets.

The length of a compressed and encrypted response leaks whether attacker-controlled text in it resembles a secret
(BREACH). Three measures prevent that: the CSRF token is masked differently in every response (`forms`), responses to
requests started by another origin are not compressed, and a random number of bytes pads the length.
"""

import secrets
import zlib
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

BYTES_MIN = 1000
"""Smaller responses fit into one packet anyway."""
LEVEL = 5
BLUR_BYTES_MAX = 64

_HEAD = b"\x1f\x8b\x08\x08" + bytes(4) + b"\x00\xff"
"""RFC 1952: deflate, file name present, no time, unknown system."""
_NAME = bytes.maketrans(bytes(range(256)), bytes(97 + i % 26 for i in range(256)))


def compress(request: Request, response: Response) -> Response:
    """Compress a page if the browser accepts gzip and the request was not started by another origin.

    Downloads and streams are not compressed.
    """
    is_page = isinstance(response, HTMLResponse) and len(response.body) >= BYTES_MIN
    if is_page and takes_gzip(request.headers) and _is_own_request(request):
        response.body = gzip(bytes(response.body), secrets.token_bytes(secrets.randbelow(BLUR_BYTES_MAX)))
        response.headers["Content-Length"] = str(len(response.body))
        response.headers["Content-Encoding"] = "gzip"
    return response


def takes_gzip(headers: Mapping[str, str]) -> bool:
    offered = (one.partition(";") for one in headers.get("accept-encoding", "").lower().split(","))
    return any(
        name.strip() == "gzip" and weight.replace(" ", "") not in ("q=0", "q=0.0") for name, _, weight in offered
    )


def gzip(content: bytes, blur: bytes = b"", level: int = LEVEL) -> bytes:
    """The content in gzip format, padded with a file name as long as `blur`."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(content) + packer.flush()
    end = zlib.crc32(content).to_bytes(4, "little") + (len(content) & 0xFFFF_FFFF).to_bytes(4, "little")
    return _HEAD + blur.translate(_NAME) + b"\x00" + packed + end


def _is_own_request(request: Request) -> bool:
    """Whether the user or one of our pages started the request.

    Over plain HTTP browsers do not send the header, and there is no encrypted secret to protect.
    """
    where = request.headers.get("sec-fetch-site")
    return where in ("same-origin", "none") if where is not None else request.url.scheme == "http"
