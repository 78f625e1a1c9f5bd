"""The application that a central process serves: API, link and console."""

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import fieldpost
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.watch import Watch
from fieldpost.front.api import serve
from fieldpost.front.api.call import Rooms
from fieldpost.front.api.errors import http_problem
from fieldpost.front.guard import Guard


def create_app(operate: Operate, watch: Watch, ingest: Ingest) -> FastAPI:
    """One for a process. The server in front of it must limit WebSocket frames to `link.messages.FRAME_BYTES_MAX`."""
    app = FastAPI(
        title="Fieldpost",
        version=fieldpost.__version__,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _http_error},
    )
    serve.add_routes(app, Rooms(operate, watch, ingest))
    app.add_middleware(Guard)
    return app


async def _http_error(_request: Request, error: HTTPException) -> Response:
    return http_problem(error.status_code, dict(error.headers or {}))
