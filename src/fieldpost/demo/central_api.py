"""Central's API for the demo: the blocking client, in a thread for each request."""

import asyncio
from datetime import datetime

from fieldpost.core.times import from_text
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.http.client import ApiClient, JsonObject

TIMEOUT_S = 10.0


class CentralApi:
    """The methods of `ApiClient` as coroutines."""

    def __init__(self, url: str, token: str) -> None:
        self._client = ApiClient(Endpoint(url, token), TIMEOUT_S)

    async def get(self, *path: str, **query: str | int) -> JsonObject:
        return await asyncio.to_thread(self._client.get, *path, **query)

    async def post(self, *path: str, body: object) -> JsonObject:
        return await asyncio.to_thread(self._client.post, *path, body=body)

    async def put(self, *path: str, body: object) -> JsonObject:
        return await asyncio.to_thread(self._client.put, *path, body=body)

    async def patch(self, *path: str, body: object) -> JsonObject:
        return await asyncio.to_thread(self._client.patch, *path, body=body)


def moment(text: str) -> datetime:
    """A time in an answer of the API."""
    found = from_text(text)
    assert found is not None, f"central names a time: {text!r}"
    return found
