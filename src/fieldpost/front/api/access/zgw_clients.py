"""`/zgw-clients`: applications that may use the ZGW API."""

from collections.abc import Sequence

from fieldpost.central.operate.zgw.clients import ClientShown
from fieldpost.core.zgw.client import ZgwClient
from fieldpost.front.http.call import Call
from fieldpost.link.http.body import Body
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View, ViewField, listing, within


class NewZgwClient(Body, frozen=True):
    client_id: str
    """The claim `client_id` of its tokens, and the owner of its subscriptions."""
    scopes: tuple[str, ...]
    """`publiceren`, `consumeren` or both."""
    kanalen: tuple[str, ...] = ()
    """The kanalen that it may publish on; all unless given."""
    secret: str | None = None
    """The secret that the application has already; generated unless given."""


class SecretRotation(Body, frozen=True):
    secret: str | None = None
    """Generated unless given."""


_FIELDS = "client_id scopes kanalen created_at created_by rotated_at last_used_at revoked_at"
CLIENT = View(
    "ZgwClientView", ZgwClient, _FIELDS, description="`last_used_at` is precise to the minute. `kanalen` [] is all."
)
CLIENTS = listing("ZgwClientsView", "clients", CLIENT)


def _secret(shown: ClientShown) -> str | None:
    return None if shown.secret is None else shown.secret.reveal()


SHOWN = View(
    "ZgwClientShownView",
    ClientShown,
    within("client", _FIELDS),
    ViewField("secret", _secret),
    "warning",
    description="A generated secret is shown only once; null if the caller gave it.",
)


@spec(CLIENTS)
async def show_all(call: Call) -> Sequence[ZgwClient]:
    """List all clients of the ZGW API, revoked ones included."""
    return await call.operate.zgw_clients.all()


@spec(SHOWN, 201, body=NewZgwClient, problems=(409,))
async def add(call: Call) -> ClientShown:
    """Add a client, or a revoked one again. The response contains the generated secret, only this once."""
    new = await call.read(NewZgwClient)
    return await call.operate.zgw_clients.add(call.actor, new.client_id, new.scopes, new.kanalen, new.secret)


@spec(SHOWN, body=SecretRotation, problems=(409,))
async def rotate(call: Call) -> ClientShown:
    """Replace the secret. For 24 hours tokens that the former one signed are valid too."""
    asked = await call.read(SecretRotation)
    return await call.operate.zgw_clients.rotate(call.actor, call.path("client_id"), asked.secret)


@spec(CLIENT, problems=(409,))
async def revoke(call: Call) -> ZgwClient:
    """Reject the client's tokens from now on. Its abonnementen stay, and get notifications."""
    return await call.operate.zgw_clients.revoke(call.actor, call.path("client_id"))
