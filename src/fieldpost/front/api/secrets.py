"""`/secrets`: the keys that seal the secrets of channels, and key rotation. No request returns a secret."""

from fieldpost.central.operate.secrets import Rotated, SecretsState
from fieldpost.front.http.call import Call
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View

SECRETS = View(
    "SecretsView",
    SecretsState,
    "keys=key_ids counts problems",
    description="`keys` are the ids of this node's keys; the first one seals. `counts` is the number of secrets per "
    "key, `problems` lists unreadable secrets.",
)
ROTATED = View("RotatedView", Rotated, "key=key_id count problems")


@spec(SECRETS)
async def show(call: Call) -> SecretsState:
    """List the keys by id and the number of secrets that each one seals."""
    return await call.operate.secrets.state()


@spec(ROTATED, problems=(409,))
async def rotate(call: Call) -> Rotated:
    """Seal all secrets with the first key. After an interruption, repeat the request to seal the rest."""
    return await call.operate.secrets.rotate(call.actor)
