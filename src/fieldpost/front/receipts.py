"""`/receipts/v1/{channel}/{token}`: providers report on targets that they have accepted.

Open without a login: the token of the URL is the authorization. Bodies are small, and each address has a rate.
"""

from fieldpost.core.delivery.receipt import Callback
from fieldpost.front.auth import Access
from fieldpost.front.body import read_body
from fieldpost.front.http.call import ApiRoute, Call

PATH = "/receipts/v1/{channel}/{token}"
BODY_BYTES_MAX = 64 * 1024


async def receive(call: Call) -> None:
    """Store a receipt; the answer is 204 after the commit."""
    request = call.request
    call.backend.receipt_allowances.take(request.client.host if request.client else "")
    body = await read_body(request, BODY_BYTES_MAX)
    public_url = call.backend.options.public_url.rstrip("/")
    query = f"?{request.url.query}" if request.url.query else ""
    callback = Callback(
        method=request.method,
        # Providers sign the URL that they were given; a proxy may have changed it.
        url=f"{public_url}{request.scope['raw_path'].decode('latin-1').partition('?')[0]}{query}",
        headers={name.lower(): value for name, value in request.headers.items()},
        query=dict(request.query_params),
        body=body,
    )
    await call.backend.ingest.receipts.receive(call.path("channel"), call.path("token"), callback)


ROUTES = tuple(ApiRoute(method, PATH, receive, Access.ANYONE) for method in ("GET", "POST"))
