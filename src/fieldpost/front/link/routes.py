"""The route table of the link, and its WebSockets."""

from fieldpost.front.auth import Access
from fieldpost.front.http.call import ApiRoute
from fieldpost.front.link import endpoints, join
from fieldpost.link.endpoint import CONTROL_PATH, DATA_PATH
from fieldpost.link.join import JOIN_PATH

SOCKETS = {DATA_PATH: endpoints.data, CONTROL_PATH: endpoints.control}

ROUTES = (
    ApiRoute("POST", JOIN_PATH, join.join, Access.JOIN),
    ApiRoute("POST", "/link/v1/submit", endpoints.submit, Access.SITE),
    ApiRoute("POST", "/link/v1/control", endpoints.control_by_post, Access.SITE),
    ApiRoute("GET", "/link/v1/status/{notification_id}", endpoints.status, Access.SITE),
)
