"""`kanaal`: topics as the ZGW API shows them."""

from typing import Any

from fieldpost.core.events.topic import Topic
from fieldpost.core.zgw.abonnement import read_kanaal
from fieldpost.front.zgw.call import ZgwCall

Shown = dict[str, Any]


async def show_all(call: ZgwCall) -> list[Shown]:
    return [_view(call, one) for one in await call.operate.kanalen.all(call.query("naam").get("naam"))]


async def show(call: ZgwCall) -> Shown:
    return _view(call, await call.operate.kanalen.get(call.path("uuid")))


async def create(call: ZgwCall) -> Shown:
    _, value = await call.body()
    return _view(call, await call.operate.kanalen.add(call.client, read_kanaal(value)))


async def update(call: ZgwCall) -> Shown:
    return await _change(call, is_partial=False)


async def partial_update(call: ZgwCall) -> Shown:
    return await _change(call, is_partial=True)


async def _change(call: ZgwCall, *, is_partial: bool) -> Shown:
    _, value = await call.body()
    given = read_kanaal(value, is_partial=is_partial)
    kanaal_id = call.path("uuid")
    return _view(call, await call.operate.kanalen.change(call.client, kanaal_id, given, is_partial=is_partial))


def _view(call: ZgwCall, kanaal: Topic) -> Shown:
    return {
        "url": call.url("kanaal", kanaal.kanaal_id or ""),
        "naam": kanaal.name,
        "documentatieLink": kanaal.documentation_url or "",
        "filters": list(kanaal.attributes),
    }
