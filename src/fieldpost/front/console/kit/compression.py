"""Pages and files made smaller on their way, without telling anyone what is in them.

What is compressed and then encrypted still tells its length, and whoever can have his own words put beside a secret
into one answer learns by that length whether they are alike (BREACH). So: the token of forms is masked anew in every
answer (`forms`); nothing is compressed for a visit that another site began; and the length is blurred by some bytes of
chance that mean nothing, for what a page fetches later by itself.
"""

import secrets
import zlib
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

BYTES_MIN = 1000
"""Less than this is one packet either way."""
LEVEL = 5
BLUR_BYTES_MAX = 64

_HEAD = b"\x1f\x8b\x08\x08" + bytes(4) + b"\x00\xff"
"""RFC 1952: deflate, with a file's name, of no time, by an unknown system."""
_NAME = bytes.maketrans(bytes(range(256)), bytes(97 + i % 26 for i in range(256)))


def compress(request: Request, response: Response) -> Response:
    """The page as this browser may have it: smaller, if it takes that and began the visit itself. Files
    to keep and streams stay as they are."""
    is_page = isinstance(response, HTMLResponse) and len(response.body) >= BYTES_MIN
    if is_page and takes_gzip(request.headers) and _is_own_visit(request):
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
    """In the format of that name. The blur makes a file's name of as many letters, which nobody looks at."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(content) + packer.flush()
    end = zlib.crc32(content).to_bytes(4, "little") + (len(content) & 0xFFFF_FFFF).to_bytes(4, "little")
    return _HEAD + blur.translate(_NAME) + b"\x00" + packed + end


def _is_own_visit(request: Request) -> bool:
    """Whether the person, or a page of ours, asks. A browser that does not say so may be led here by anyone; over plain
    HTTP, where browsers do not say so, there is no secret to guess at."""
    where = request.headers.get("sec-fetch-site")
    return where in ("same-origin", "none") if where is not None else request.url.scheme == "http"
