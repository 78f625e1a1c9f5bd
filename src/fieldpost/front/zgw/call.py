"""One request to the ZGW API: its client, query and body."""

import json
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from fieldpost.central.operate.operate import Operate
from fieldpost.central.operate.zgw.options import ZgwOptions
from fieldpost.clock import Clock
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import PAYLOAD_BYTES_MAX
from fieldpost.core.zgw.client import ZgwClient
from fieldpost.core.zgw.fields import invalid
from fieldpost.front.backend import Backend
from fieldpost.front.body import check_content_type, read_body
from fieldpost.link.codec import check_json

BASE = "/notificaties/api/v1"


@dataclass(frozen=True, slots=True)
class ZgwCall:
    """One request, after authentication."""

    request: Request
    backend: Backend
    options: ZgwOptions
    clock: Clock
    client_or_none: ZgwClient | None

    @property
    def client(self) -> ZgwClient:
        assert self.client_or_none is not None, "the route needs a token"
        return self.client_or_none

    @property
    def operate(self) -> Operate:
        return self.backend.operate

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, *known: str) -> dict[str, str]:
        """The query parameters; InvalidParams for unknown or repeated ones."""
        found: dict[str, str] = {}
        for name, value in self.request.query_params.multi_items():
            if name not in known:
                raise invalid(name[:64], "unknown-parameters", "this query parameter does not exist")
            if name in found:
                raise invalid(name, "invalid", "is given twice")
            found[name] = value
        return found

    async def body(self) -> tuple[bytes, Any]:
        """The JSON body as bytes and as a value. Raises InvalidInput; duplicate keys and NaN are rejected too."""
        check_content_type(self.request, "application/json")
        data = await read_body(self.request, PAYLOAD_BYTES_MAX)
        check_json(data)
        try:
            return data, json.loads(data)
        except (ValueError, RecursionError):
            raise InvalidInput("json.malformed", "the body is not JSON") from None

    def url(self, *parts: str) -> str:
        """The public URL of a resource; the Host header has no influence."""
        return "/".join((self.backend.options.public_url.rstrip("/") + BASE, *parts))
