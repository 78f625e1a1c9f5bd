"""`fieldpost listen`: a local receiver of webhooks that verifies and prints each request, for developers."""

import contextlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.options import is_json
from fieldpost.core.errors import ConfigError, InvalidInput

BODY_BYTES_MAX = 1024 * 1024
REQUEST_S = 30.0


def listen(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any free port.")] = 8600,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    secret_file: Annotated[
        Path | None, typer.Option(help="File with the signing secret; one per line during a rotation.")
    ] = None,
    status: Annotated[int, typer.Option(help="Status to answer verified requests with, to try retries.")] = 204,
) -> None:
    """Receive webhooks on this machine, verify their signatures and print them, until interrupted.

    Without --secret-file the requests are printed unverified. An invalid signature is answered with 401. With --json,
    one line of JSON per request.
    """
    if not 200 <= status <= 599:
        raise InvalidInput("cli.status", f"--status must be between 200 and 599, got {status}", field="--status")
    server = _server(host, port, _read_secrets(secret_file), status)
    address = f"http://{host}:{server.server_address[1]}/"
    print(f"Listening on {address} for webhooks; stop with Ctrl-C.", file=sys.stderr, flush=True)
    try:
        server.serve_forever()
    finally:
        server.server_close()


def _server(host: str, port: int, secrets: list[str], status: int) -> ThreadingHTTPServer:
    handler = type("WebhookHandler", (_Handler,), {"secrets": secrets, "answer": status})
    try:
        return ThreadingHTTPServer((host, port), handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            "listen.address", f"cannot listen on {host} port {port}: {reason}", hint="choose another --port"
        ) from None


def _read_secrets(file: Path | None) -> list[str]:
    from fieldpost.core.events.signature import check_signing_secret

    if file is None:
        return []
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InvalidInput("cli.file", f"cannot read {file}: {reason}", field="--secret-file") from None
    for line in lines:
        check_signing_secret(line, "--secret-file")
    if not lines:
        raise InvalidInput("cli.file", f"{file} holds no secret", field="--secret-file")
    return lines


class _Handler(BaseHTTPRequestHandler):
    """Answers every POST; `secrets` and `answer` are set by `_server`."""

    secrets: list[str]
    answer: int
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_S

    def do_POST(self) -> None:
        from fieldpost.core.errors import InvalidInput
        from fieldpost.outbox.receiver import verify_webhook

        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            self._reply(413, "a length of at most 1 MiB is required")
            return
        body = self.rfile.read(int(length))
        problem = None
        if self.secrets:
            try:
                verify_webhook(self.secrets, dict(self.headers.items()), body)
            except InvalidInput as error:
                problem = error.message
        status = 401 if problem else self.answer
        self._print(body, problem, status)
        self._reply(status, problem or "")

    def _reply(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if status == 413:
            self.send_header("Connection", "close")
        self.end_headers()
        if status != 204:
            self.wfile.write(data)

    def _print(self, body: bytes, problem: str | None, status: int) -> None:
        from fieldpost.core.text import printable

        shown: dict[str, Any] = {
            "webhook_id": self.headers.get("webhook-id"),
            "path": self.path,
            "is_verified": None if not self.secrets else problem is None,
            "problem": problem,
            "status": status,
            "headers": dict(self.headers.items()),
        }
        text = body.decode("utf-8", "replace")
        if is_json():
            print(json.dumps({**shown, "body": text}), flush=True)
            return
        verdict = "unverified" if not self.secrets else f"rejected: {problem}" if problem else "verified"
        print(f"\n{printable(shown['webhook_id'] or '-')}  {printable(self.path)}  {verdict}  answered {status}")
        for name, value in self.headers.items():
            print(f"  {printable(name)}: {printable(value)}")
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        for line in text.splitlines():
            print(f"  {printable(line)}")
        sys.stdout.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are printed by `_print` only."""
