"""Requests to the running agent of a folder, over its Unix socket."""

import json
from pathlib import Path
from typing import Any

ANSWER_BYTES_MAX = 1024 * 1024


def ask_agent(
    folder: Path, method: str, path: str, body: dict[str, object] | None = None, *, timeout_s: float
) -> dict[str, Any]:
    """The agent's answer. Raises Unavailable if it does not answer, and Conflict with its reason if it refuses."""
    import socket
    from http.client import HTTPConnection, HTTPException

    from fieldpost.core.errors import Conflict, Unavailable

    missing = Unavailable("agent.not_running", f"no agent answers in {folder}", hint="start it: fieldpost site")
    if not hasattr(socket, "AF_UNIX"):
        raise missing
    connection = HTTPConnection("localhost", timeout=timeout_s)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(timeout_s)
    try:
        connection.sock.connect(str(folder / "agent.sock"))
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {} if body is None else {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read(ANSWER_BYTES_MAX))
        if response.status < 400:
            return answer
        problem = answer["code"], answer["detail"], answer.get("hint")
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        raise missing from None
    finally:
        connection.close()
    code, detail, hint = problem
    raise Conflict(str(code), str(detail), hint=hint)
