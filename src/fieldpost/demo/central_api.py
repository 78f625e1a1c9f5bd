"""Central's API as the demo uses it, over HTTP like any other program."""

from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp

from fieldpost.core.errors import Conflict, Denied, FieldpostError, InvalidInput, NotFound, Unavailable

TIMEOUT_S = 10.0

ApiObject = dict[str, Any]

_KINDS: dict[int, type[FieldpostError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}


class CentralApi:
    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get(self, *path: str, **query: str | int) -> ApiObject:
        return await self._ask("GET", path, params=query)

    async def post(self, *path: str, body: object) -> ApiObject:
        return await self._ask("POST", path, json=body)

    async def patch(self, *path: str, body: object) -> ApiObject:
        return await self._ask("PATCH", path, json=body)

    async def _ask(self, method: str, path: tuple[str, ...], **given: Any) -> ApiObject:
        url = "/".join([self._url, "api", "v1", *(quote(part, safe="") for part in path)])
        try:
            async with self._session.request(method, url, **given) as response:
                answer: ApiObject = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable("central.unreachable", f"central does not answer: {reason}") from error
        if response.status < 400:
            return answer
        kind = _KINDS.get(response.status, InvalidInput if response.status < 500 else Unavailable)
        raise kind(answer["code"], answer["detail"], hint=answer.get("hint"), field=answer.get("field"))
