"""The whole API as one table. What is not here, or in the console's table, is not reachable."""

from fieldpost.front.api import (
    breakers,
    bulk_acts,
    channels,
    health,
    kpis,
    link,
    lists,
    nodes,
    notifications,
    secrets,
    sites,
)
from fieldpost.front.api.call import Route
from fieldpost.front.auth import Access
from fieldpost.link.endpoint import CONTROL_PATH, DATA_PATH

SOCKETS = {DATA_PATH: link.data, CONTROL_PATH: link.control}
"""The WebSockets; they serve sites."""

ROUTES = (
    Route("GET", "/healthz", health.alive, Access.ANYONE),
    Route("GET", "/readyz", health.ready, Access.ANYONE),
    Route("GET", "/metrics", health.metrics, Access.VIEWER),
    Route("GET", "/api/v1/health", health.show, Access.VIEWER),
    Route("GET", "/api/v1/kpis", kpis.show, Access.VIEWER),
    Route("GET", "/api/v1/kpis/sites", kpis.by_site, Access.VIEWER),
    Route("GET", "/api/v1/kpis/history", kpis.history, Access.VIEWER),
    Route("GET", "/api/v1/nodes", nodes.show_all, Access.VIEWER),
    Route("GET", "/api/v1/notifications", notifications.page, Access.VIEWER),
    Route("GET", "/api/v1/notifications/parked-groups", notifications.parked_groups, Access.VIEWER),
    Route("GET", "/api/v1/notifications/{notification_id}", notifications.show, Access.VIEWER),
    Route("POST", "/api/v1/notifications/{notification_id}/retry", notifications.retry, Access.OPERATOR),
    Route("POST", "/api/v1/notifications/{notification_id}/discard", notifications.discard, Access.OPERATOR),
    Route("GET", "/api/v1/bulk-acts", bulk_acts.show_all, Access.VIEWER),
    Route("POST", "/api/v1/bulk-acts", bulk_acts.start, Access.OPERATOR),
    Route("POST", "/api/v1/bulk-acts/preview", bulk_acts.preview, Access.VIEWER),
    Route("GET", "/api/v1/bulk-acts/{act_id}", bulk_acts.show, Access.VIEWER),
    Route("GET", "/api/v1/bulk-acts/{act_id}/rows", bulk_acts.rows, Access.VIEWER),
    Route("POST", "/api/v1/bulk-acts/{act_id}/cancel", bulk_acts.cancel, Access.OPERATOR),
    Route("GET", "/api/v1/lists", lists.show_all, Access.VIEWER),
    Route("POST", "/api/v1/lists", lists.add, Access.ADMIN),
    Route("GET", "/api/v1/lists/{name:path}", lists.show, Access.VIEWER),
    Route("PATCH", "/api/v1/lists/{name:path}", lists.change, Access.ADMIN),
    Route("DELETE", "/api/v1/lists/{name:path}", lists.remove, Access.ADMIN),
    Route("GET", "/api/v1/export/lists", lists.export, Access.VIEWER),
    Route("POST", "/api/v1/import/lists", lists.import_, Access.ADMIN),
    Route("GET", "/api/v1/channels", channels.show_all, Access.VIEWER),
    Route("POST", "/api/v1/channels", channels.add, Access.ADMIN),
    Route("GET", "/api/v1/channels/{name:path}", channels.show, Access.VIEWER),
    Route("PATCH", "/api/v1/channels/{name:path}", channels.change, Access.ADMIN),
    Route("DELETE", "/api/v1/channels/{name:path}", channels.remove, Access.ADMIN),
    Route("POST", "/api/v1/channels/{name:path}/test", channels.test, Access.ADMIN),
    Route("GET", "/api/v1/secrets", secrets.show, Access.ADMIN),
    Route("POST", "/api/v1/secrets/rotate", secrets.rotate, Access.ADMIN),
    Route("GET", "/api/v1/breakers", breakers.show_all, Access.VIEWER),
    Route("POST", "/api/v1/breakers/{key:path}/reset", breakers.reset, Access.OPERATOR),
    Route("GET", "/api/v1/sites", sites.show_all, Access.VIEWER),
    Route("POST", "/api/v1/sites", sites.add, Access.ADMIN),
    Route("POST", "/link/v1/submit", link.submit, Access.SITE),
    Route("GET", "/link/v1/status/{notification_id}", link.status, Access.SITE),
)
