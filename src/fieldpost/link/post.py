"""Messages by POST, where a proxy rejects WebSockets."""

import asyncio

import aiohttp

from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.link.codec import decode_as
from fieldpost.link.connection import LOST, describe_error, tls_of, unreachable
from fieldpost.link.endpoint import SUBMIT_PATH, Endpoint, denied
from fieldpost.link.messages import FRAME_BYTES_MAX, Ack, Refusal


async def post_submit(
    http: aiohttp.ClientSession, endpoint: Endpoint, data: bytes, seq: int, patience_s: float
) -> Ack | Refusal:
    """Submit `data` and return central's answer. Raises Denied or Unavailable; see LinkClient.submit."""
    response, body = await post(http, endpoint, SUBMIT_PATH, data, patience_s)
    return _from_http(response.status, response.headers.get("Retry-After"), body, seq)


async def post(
    http: aiohttp.ClientSession, endpoint: Endpoint, path: str, data: bytes, timeout_s: float
) -> tuple[aiohttp.ClientResponse, bytes]:
    """POST one message and return the response with its body. Raises Unavailable without an answer in time."""
    headers = {"Authorization": endpoint.authorization, "Content-Type": "application/json"}
    url, tls = endpoint.at(path), tls_of(endpoint)
    try:
        async with (
            asyncio.timeout(timeout_s),
            http.post(url, data=data, headers=headers, allow_redirects=False, ssl=tls) as response,
        ):
            return response, await response.content.read(FRAME_BYTES_MAX)
    except TimeoutError:
        raise Unavailable(LOST, "central did not answer in time") from None
    except aiohttp.ClientConnectorError as error:
        raise unreachable(error) from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unavailable(LOST, f"the connection to central broke: {describe_error(error)}") from error


def _from_http(status: int, retry_after: str | None, body: bytes, seq: int) -> Ack | Refusal:
    """The HTTP response as the link message that a WebSocket would have received."""
    match status:
        case 200:
            try:
                answer = decode_as(body, Ack)
            except InvalidInput as error:
                raise Unavailable(LOST, f"central's answer is invalid: {error.message}") from error
            if answer.seq != seq:
                raise Unavailable(LOST, "central answered a different message")
            return answer
        case 401 | 403:
            raise denied(status)
        case 400 | 409 | 413 | 422:
            return Refusal("link.invalid", f"central answered with HTTP {status}", seq)
        case 429 | 503:
            wait_s = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None
            return Refusal("link.busy", f"central answered with HTTP {status}", seq, wait_s)
        case _:
            raise Unavailable("link.unusable", f"central answered with HTTP {status}")
