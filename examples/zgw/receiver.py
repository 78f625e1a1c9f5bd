"""Receive notifications: register an abonnement, check Authorization, answer 204, print each one.

    python receiver.py https://fieldpost.example.nl/notificaties/api/v1 my-app SECRET http://127.0.0.1:8602/

The last argument is the callback as central reaches it. Central sends a test notification to it before it stores the
abonnement, so the server runs first.
"""

import hmac
import json
import secrets
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

from zgw import call

KANAAL = "zaken"


def serve(port: int, auth: str) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_known = hmac.compare_digest(self.headers.get("Authorization", "").encode(), auth.encode())
            self.send_response(204 if is_known else 403)
            self.end_headers()
            if is_known and (notification := json.loads(body))["kanaal"] != "test":
                print("received", notification["actie"], notification["resourceUrl"], flush=True)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return server


def main(api: str, client_id: str, secret: str, callback: str) -> None:
    auth = f"Bearer {secrets.token_urlsafe(32)}"
    serve(urlsplit(callback).port or 80, auth)
    kanalen = [{"naam": KANAAL, "filters": {"#actie": "create"}}]
    made = call(
        api, client_id, secret, "POST", "abonnement", {"callbackUrl": callback, "auth": auth, "kanalen": kanalen}
    )
    print("subscribed", made["url"], flush=True)
    with suppress(EOFError, KeyboardInterrupt):
        input()  # until Ctrl-D
    call(api, client_id, secret, "DELETE", f"abonnement/{made['url'].rpartition('/')[2]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
