"""A receiver of webhooks with the standard library alone: verifies, ignores repeats, answers quickly.

    python receiver.py whsec_…          listens on 127.0.0.1 port 8601

Do the work after the answer, in a queue of your own: a request that takes longer than 30 seconds counts as failed and
comes again.
"""

import base64
import hashlib
import hmac
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8601
TOLERANCE_S = 300


def is_authentic(secret: str, headers, body: bytes) -> bool:
    """Whether Fieldpost signed this request with the secret within the last five minutes."""
    id_, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{id_}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(digest).decode()
    # After a rotation there are two signatures; one of them must be ours.
    return any(hmac.compare_digest(given, expected) for given in headers.get("webhook-signature", "").split())


def main(secret: str, port: int = PORT) -> None:
    seen: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if not is_authentic(secret, self.headers, body):
                self.send_response(401)
                self.end_headers()
                return
            id_ = self.headers["webhook-id"]
            if id_ not in seen:  # keep the ids in your database; the same event may come twice
                seen.add(id_)
                event = json.loads(body)
                print(f"{id_} {event.get('type')} {json.dumps(event.get('data'))}", flush=True)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"listening on http://127.0.0.1:{server.server_address[1]}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
