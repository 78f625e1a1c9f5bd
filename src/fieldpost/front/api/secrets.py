"""`/secrets`: under which keys they stand, and sealing them anew. What they say is nowhere to be had."""

from collections.abc import Mapping

import msgspec

from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.front.http.endpoint_spec import spec


class SecretsView(msgspec.Struct, frozen=True):
    """`keys` are the ids of this node's keys, the first of which seals; `counts` says how many secrets stand under
    which key, `troubles` what cannot be read."""

    keys: tuple[str, ...]
    counts: Mapping[str, int]
    troubles: tuple[str, ...]


class RotatedView(msgspec.Struct, frozen=True):
    key: str
    count: int
    troubles: tuple[str, ...]


@spec(SecretsView)
async def show(call: Call) -> ApiAnswer:
    """The keys by their ids, and what stands under each."""
    call.query()
    found = await call.operate.secrets.state()
    return ApiAnswer(SecretsView(found.key_ids, found.counts, found.troubles))


@spec(RotatedView, problems=(409,))
async def rotate(call: Call) -> ApiAnswer:
    """All secrets sealed anew under the first key. Where it ends half-way, the same again does the rest."""
    call.query()
    rotated = await call.operate.secrets.rotate(call.actor)
    return ApiAnswer(RotatedView(rotated.key_id, rotated.count, rotated.troubles))
