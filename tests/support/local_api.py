"""The local API of a site, served for a test, and a check of what it answers against its own description."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from fieldpost.clock import SystemClock
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.config.folder import read_folder
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.local.routes import document
from fieldpost.site.local.server import LocalApi
from support.ports import free_port
from support.running_central import until


@dataclass
class Answer:
    status: int
    body: Any
    headers: dict[str, str]


@dataclass
class Local:
    """How a test talks to it; every answer is compared with what the OpenAPI document says of its route."""

    folder: Path
    url: str
    token: str
    session: aiohttp.ClientSession
    port_session: aiohttp.ClientSession
    health: ForwardHealth = field(default_factory=ForwardHealth)

    async def __call__(self, method: str, path: str, body: object = None, **query: str) -> Answer:
        """Over the Unix socket."""
        async with self.session.request(method, f"http://localhost{path}", json=body, params=query) as response:
            answer = await read(response)
        check_described(method, path, answer)
        return answer

    async def over_port(
        self, method: str, path: str, *, token: str | None = None, data: bytes | None = None, **headers: str
    ) -> Answer:
        """Over the port, with these headers; without a token unless one is given."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        async with self.port_session.request(method, f"{self.url}{path}", data=data, headers=headers) as response:
            return await read(response)


async def read(response: aiohttp.ClientResponse) -> Answer:
    content = await response.read()
    return Answer(response.status, json.loads(content) if content else None, dict(response.headers))


@asynccontextmanager
async def serving(folder: Path, **options: float) -> AsyncIterator[Local]:
    """Serve the local API of this site's folder on its socket and on a free port."""
    port = free_port()
    settings = folder / "site.toml"
    lines = [f"{name} = {value}\n" for name, value in {"port": port, **options}.items()]
    settings.write_text(settings.read_text() + "\n[local]\n" + "".join(lines))
    found = read_folder(folder)
    buffer = Buffer(found.buffer_path)
    stopping = asyncio.Event()
    connector = aiohttp.UnixConnector(str(folder / "agent.sock"))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        aiohttp.ClientSession(skip_auto_headers=["Content-Type"]) as port_session,
    ):
        local = Local(folder, f"http://127.0.0.1:{port}", "", session, port_session)
        api = LocalApi(found, buffer, SystemClock(), lambda: local.health)
        running = asyncio.create_task(api.run(stopping))
        try:
            await until(lambda: len(api.addresses) == 2, 20, "both doors to open")
            local.token = (folder / "local.token").read_text().strip()
            yield local
        finally:
            stopping.set()
            await running
            await api.close()
            buffer.close()


def check_described(method: str, path: str, answer: Answer) -> None:
    """Raise AssertionError unless the document has this route, this status, and a body of this shape for it."""
    described = document()
    route = next((r for r in described["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", r), path)), None)
    if route is None or method.lower() not in described["paths"][route]:
        assert answer.status in (404, 405), f"{method} {path} is not described"
        return
    responses = described["paths"][route][method.lower()]["responses"]
    assert str(answer.status) in responses, f"{method} {path} answered {answer.status}, which is not described"
    [(media_type, content)] = responses[str(answer.status)]["content"].items()
    assert answer.headers["Content-Type"].partition(";")[0] == media_type
    wrong = misfit(answer.body, content["schema"], described["components"]["schemas"], "$")
    assert wrong is None, f"{method} {path}: {wrong}"


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def misfit(value: Any, schema: dict[str, Any], schemas: dict[str, Any], where: str) -> str | None:
    """Where a value is not as the JSON Schema says; None if it is. Knows the words that our document uses."""
    known = {
        "$ref",
        "anyOf",
        "type",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "enum",
        "default",
        "format",
    }
    assert set(schema) <= known | {"title", "description"}, schema
    if "$ref" in schema:
        return misfit(value, schemas[schema["$ref"].rpartition("/")[2]], schemas, where)
    if "anyOf" in schema:
        tried = [misfit(value, one, schemas, where) for one in schema["anyOf"]]
        return None if None in tried else "; ".join(text for text in tried if text)
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (kind in ("integer", "number") and isinstance(value, bool))):
        return f"{where} is {value!r}, not {kind}"
    if kind == "array":
        found = [misfit(one, schema.get("items", {}), schemas, f"{where}[{n}]") for n, one in enumerate(value)]
        return next((text for text in found if text), None)
    if kind == "object":
        return _misfit_of_object(value, schema, schemas, where)
    return None


def _misfit_of_object(value: Any, schema: dict[str, Any], schemas: dict[str, Any], where: str) -> str | None:
    missing = set(schema.get("required", ())) - set(value)
    if missing:
        return f"{where} lacks {missing}"
    properties = schema.get("properties", {})
    more = schema.get("additionalProperties")
    for name, one in value.items():
        if name not in properties and not isinstance(more, dict) and name != "type":
            return f"{where}.{name} is not described"
        wrong = misfit(one, properties.get(name, more if isinstance(more, dict) else {}), schemas, f"{where}.{name}")
        if wrong:
            return wrong
    return None
