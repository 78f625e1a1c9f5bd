"""`abonnement`: the client's subscriptions as the ZGW API shows them. `auth` is never shown."""

from typing import Any

from fieldpost.core.events.filter import zgw_filters
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.zgw.abonnement import read_abonnement
from fieldpost.front.zgw.call import ZgwCall

ShownAbonnement = dict[str, Any]


async def show_all(call: ZgwCall) -> list[ShownAbonnement]:
    return [_view(call, one) for one in await call.operate.abonnementen.of(call.client)]


async def show(call: ZgwCall) -> ShownAbonnement:
    return _view(call, await call.operate.abonnementen.of_id(call.client, call.path("uuid")))


async def create(call: ZgwCall) -> ShownAbonnement:
    _, value = await call.body()
    given = read_abonnement(value)
    return _view(call, await call.operate.abonnementen.create(call.client, given, call.url("abonnement")))


async def update(call: ZgwCall) -> ShownAbonnement:
    return await _change(call, is_partial=False)


async def partial_update(call: ZgwCall) -> ShownAbonnement:
    return await _change(call, is_partial=True)


async def delete(call: ZgwCall) -> None:
    await call.operate.abonnementen.drop(call.client, call.path("uuid"))


async def _change(call: ZgwCall, *, is_partial: bool) -> ShownAbonnement:
    _, value = await call.body()
    given = read_abonnement(value, is_partial=is_partial)
    abonnement_id = call.path("uuid")
    url = call.url("abonnement", abonnement_id)
    return _view(call, await call.operate.abonnementen.alter(call.client, abonnement_id, given, url))


def _view(call: ZgwCall, found: Subscription) -> ShownAbonnement:
    return {
        "url": call.url("abonnement", found.abonnement_id or ""),
        "callbackUrl": found.url,
        "kanalen": [{"naam": entry.topic, "filters": zgw_filters(entry)} for entry in found.filter],
    }
