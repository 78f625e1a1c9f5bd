"""The route table of the ZGW API."""

from dataclasses import dataclass

from fieldpost.core.zgw.client import ZgwScope
from fieldpost.front.zgw import abonnement, kanaal, notificatie, openapi
from fieldpost.front.zgw.call import BASE
from fieldpost.link.http.endpoint_spec import Route

PUBLISH, CONSUME = ZgwScope.PUBLISH, ZgwScope.CONSUME


@dataclass(frozen=True)
class ZgwRoute(Route[tuple[ZgwScope, ...]]):
    """A route; `access` are the scopes of which a client needs one, none for callers without a token."""

    operation_id: str = ""
    status: int = 200
    query: tuple[str, ...] = ()
    """The query parameters that it has."""


ROUTES = (
    ZgwRoute("GET", f"{BASE}/kanaal", kanaal.show_all, (PUBLISH, CONSUME), "kanaal_list", query=("naam",)),
    ZgwRoute("POST", f"{BASE}/kanaal", kanaal.create, (PUBLISH,), "kanaal_create", 201),
    ZgwRoute("GET", f"{BASE}/kanaal/{{uuid}}", kanaal.show, (PUBLISH, CONSUME), "kanaal_read"),
    ZgwRoute("PUT", f"{BASE}/kanaal/{{uuid}}", kanaal.update, (PUBLISH,), "kanaal_update"),
    ZgwRoute("PATCH", f"{BASE}/kanaal/{{uuid}}", kanaal.partial_update, (PUBLISH,), "kanaal_partial_update"),
    ZgwRoute("GET", f"{BASE}/abonnement", abonnement.show_all, (PUBLISH, CONSUME), "abonnement_list"),
    ZgwRoute("POST", f"{BASE}/abonnement", abonnement.create, (CONSUME,), "abonnement_create", 201),
    ZgwRoute("GET", f"{BASE}/abonnement/{{uuid}}", abonnement.show, (PUBLISH, CONSUME), "abonnement_read"),
    ZgwRoute("PUT", f"{BASE}/abonnement/{{uuid}}", abonnement.update, (CONSUME,), "abonnement_update"),
    ZgwRoute(
        "PATCH", f"{BASE}/abonnement/{{uuid}}", abonnement.partial_update, (CONSUME,), "abonnement_partial_update"
    ),
    ZgwRoute("DELETE", f"{BASE}/abonnement/{{uuid}}", abonnement.delete, (CONSUME,), "abonnement_delete", 204),
    ZgwRoute("POST", f"{BASE}/notificaties", notificatie.create, (PUBLISH,), "notificaties_create", 201),
    ZgwRoute("GET", f"{BASE}/schema/openapi.yaml", openapi.show_yaml, ()),
    ZgwRoute("GET", f"{BASE}/schema/openapi.json", openapi.show_json, ()),
)
