"""A client of the ZGW Notificaties API with the standard library alone: makes the token, sends JSON."""

import base64
import hashlib
import hmac
import json
import time
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def token(client_id: str, secret: str) -> str:
    """A JWT for one request; central accepts it for an hour."""
    claims = {"iss": client_id, "iat": int(time.time()), "client_id": client_id}
    signed = f"{_part({'typ': 'JWT', 'alg': 'HS256'})}.{_part(claims)}"
    signature = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def call(api: str, client_id: str, secret: str, method: str, path: str, body=None):
    """The answer of the API, parsed; SystemExit with the invalid fields if it rejects the request."""
    headers = {"Authorization": f"Bearer {token(client_id, secret)}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(f"{api.rstrip('/')}/{path}", data, headers, method=method), timeout=60) as answer:
            return json.loads(answer.read() or b"null")
    except HTTPError as error:
        raise SystemExit(f"{method} {path}: {error.status} {error.read().decode()}") from None


def _part(value: dict) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
