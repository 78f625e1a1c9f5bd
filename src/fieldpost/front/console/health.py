"""The health page: how much is where, trouble first."""

from starlette.responses import Response

from fieldpost.front.auth import Access
from fieldpost.front.console.visit import MenuLine, PageRoute, Visit

PATH = "/"


async def page(visit: Visit) -> Response:
    return visit.page("health.html", snapshot=await visit.rooms.watch.kpis.now())


MENU = MenuLine("Health", PATH, "Now", "h")
ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER),)
