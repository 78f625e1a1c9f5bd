"""Reading what a request carries, up to a limit."""

from starlette.requests import ClientDisconnect, Request

from fieldpost.core.errors import InvalidInput


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The whole body, or InvalidInput as soon as it is longer than allowed.

    It is taken as it comes: nothing is decompressed, so what it weighs on the line is what it weighs here. How long it
    may take is the server's affair (`server.py`).
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise InvalidInput(
            "http.content_encoding", "the body must come as it is, without an encoding", field="Content-Encoding"
        )
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
        # Nobody hears this any more; but it is the caller's doing, and no bug of ours.
        raise InvalidInput("http.incomplete", "the connection ended before the body did") from None
    return bytes(parts)


def check_content_type(request: Request, wanted: str) -> None:
    """Raise InvalidInput unless the body is said to be of this type, in UTF-8 if it says in what."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() != wanted or (parameters.strip() and charset not in ("utf-8", "utf8")):
        raise InvalidInput("http.content_type", f"the body must be {wanted} in UTF-8", field="Content-Type")


def _too_large(bytes_max: int) -> InvalidInput:
    return InvalidInput("http.too_large", f"the body has more than {bytes_max} bytes")
