"""The web application of central: API, link, console and ZGW API."""

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fieldpost.central.commands.sender import CommandSender
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.operate import Operate
from fieldpost.central.operate.zgw.options import ZgwOptions
from fieldpost.central.watch.watch import Watch
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import FieldpostError
from fieldpost.core.setting import EffectiveSettings
from fieldpost.front import receipts
from fieldpost.front.allowance import Allowances, ReceiptAllowances
from fieldpost.front.api import routes as api
from fieldpost.front.backend import Backend
from fieldpost.front.change_feed import ChangeFeed
from fieldpost.front.console.serve import Console
from fieldpost.front.guard import ResponseGuard
from fieldpost.front.http.problems import http_problem, problem
from fieldpost.front.http.serving import RouteTable
from fieldpost.front.link import routes as link
from fieldpost.front.open_links import OpenLinks
from fieldpost.front.options import FrontOptions
from fieldpost.front.proxies import Proxies
from fieldpost.front.zgw.faults import fault
from fieldpost.front.zgw.serving import ZgwApi


def create_app(
    operate: Operate,
    watch: Watch,
    ingest: Ingest,
    commands: CommandSender,
    options: FrontOptions | None = None,
    clock: Clock | None = None,
    effective_settings: EffectiveSettings | None = None,
    zgw: ZgwOptions | None = None,
) -> Starlette:
    """Create the application of a process. `server.CentralServer` serves it and enforces the connection limits.

    `effective_settings` are the settings of the whole process, for display; the front itself reads its `options`.
    """
    clock = clock or SystemClock()
    options = options or FrontOptions()
    backend = Backend(
        operate,
        watch,
        ingest,
        Allowances(options, clock),
        commands,
        ChangeFeed(watch.overview.change_tokens),
        OpenLinks(operate.accounts),
        ReceiptAllowances(options, clock),
        options,
        effective_settings or EffectiveSettings(),
    )
    table = RouteTable((*api.ROUTES, *link.ROUTES, *receipts.ROUTES), link.SOCKETS)
    console = Console(backend)
    zgw_api = ZgwApi(backend, zgw, clock) if zgw is not None and zgw.enabled else None

    def problem_at(path: str, error: FieldpostError) -> Response:
        """The response for an error found before any route."""
        return fault(error) if zgw_api is not None and zgw_api.serves(path) else problem(error)

    async def http_error(request: Request, error: Exception) -> Response:
        """Answer an unknown path or method."""
        assert isinstance(error, HTTPException)
        if zgw_api is not None and zgw_api.serves(request.url.path):
            return zgw_api.http_fault(error.status_code, request.url.path)
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and request.url.path.startswith("/api/"):
            headers["Allow"] = table.allowed(request.url.path)
        if request.url.path.startswith(("/api/", "/link/", "/receipts/")) or "text/html" not in request.headers.get(
            "accept", ""
        ):
            return http_problem(error.status_code, headers)
        detail = "There is no such page." if error.status_code == 404 else f"{error.detail}."
        response = await console.problem(request, error.status_code, detail)
        response.headers.update(headers)
        return response

    app = Starlette(exception_handlers={HTTPException: http_error})
    app.router.redirect_slashes = False
    app.state.backend = backend
    app.state.problem_at = problem_at
    table.add_to(app, backend)
    console.add_routes(app)
    if zgw_api is not None:
        zgw_api.add_to(app)
    app.add_middleware(ResponseGuard)
    app.add_middleware(Proxies, trusted=options.proxies())
    return app
