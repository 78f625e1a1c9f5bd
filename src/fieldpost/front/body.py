"""Reading request bodies, up to a limit."""

from starlette.requests import ClientDisconnect, Request

from fieldpost.core.errors import InvalidInput


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The whole body, or InvalidInput as soon as it is longer than allowed.

    A compressed body is rejected, so that its size in memory is its size on the line. The server enforces the deadline
    (`http_limits.py`).
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise InvalidInput("http.content_encoding", "the body must not be compressed", field="Content-Encoding")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > bytes_max:
        raise _too_large(bytes_max)
    parts = bytearray()
    try:
        async for part in request.stream():
            parts += part
            if len(parts) > bytes_max:
                raise _too_large(bytes_max)
    except ClientDisconnect:
        # Nobody receives this answer, but a disconnect must not be logged as a bug of central.
        raise InvalidInput("http.incomplete", "the connection ended before the body did") from None
    return bytes(parts)


def check_content_type(request: Request, wanted: str) -> None:
    """Raise InvalidInput unless Content-Type is this type, in UTF-8 if it names a charset."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() != wanted or (parameters.strip() and charset not in ("utf-8", "utf8")):
        raise InvalidInput("http.content_type", f"the body must be {wanted} in UTF-8", field="Content-Type")


def _too_large(bytes_max: int) -> InvalidInput:
    return InvalidInput("http.too_large", f"the body has more than {bytes_max} bytes")
