"""`/secrets`: under which keys they stand, and sealing them anew. What they say is nowhere to be had."""

from collections.abc import Mapping

import msgspec

from fieldpost.front.http.call import Answer, Call
from fieldpost.front.http.endpoint_spec import promises


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


@promises(SecretsView)
async def show(call: Call) -> Answer:
    """The keys by their ids, and what stands under each."""
    call.query()
    found = await call.operate.secrets.state()
    return Answer(SecretsView(found.key_ids, found.counts, found.troubles))


@promises(RotatedView, problems=(409,))
async def rotate(call: Call) -> Answer:
    """All secrets sealed anew under the first key. Where it ends half-way, the same again does the rest."""
    call.query()
    rotated = await call.operate.secrets.rotate(call.actor)
    return Answer(RotatedView(rotated.key_id, rotated.count, rotated.troubles))
