"""An ntfy server: publishing as JSON, access tokens and limits."""

import re
from datetime import timedelta
from typing import Any

from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.providers.server import ProviderCopy, ProviderServer, RequestLimit, json_of, json_reaction

MESSAGE_BYTES_MAX = 4096
_TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")


class FakeNtfy(ProviderServer):
    """The server, with one access token; 60 requests at once, then one every 5 seconds, as by default."""

    def __init__(self, token: str | None = None, *, daily_max: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.token = token
        self.daily_max = daily_max
        self._of_visitor = RequestLimit(60, timedelta(minutes=5))

    def answer(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        if request.method not in ("POST", "PUT") or request.path != "/":
            return ntfy_error(404, 40401, "page not found")
        if self.token is not None and request.headers.get("authorization") != f"Bearer {self.token}":
            return ntfy_error(401, 40101, "unauthorized")
        said = json_of(request)
        if said is None or len(request.body) > 2 * MESSAGE_BYTES_MAX:
            return ntfy_error(400, 40024, "invalid request: request body must be valid JSON")
        topic, message = said.get("topic"), said.get("message") or "triggered"
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
            return ntfy_error(400, 40009, "invalid request: topic invalid")
        if len(message.encode()) > MESSAGE_BYTES_MAX:
            return ntfy_error(413, 41301, "attachment too large, or bandwidth limit reached")
        if type(said.get("priority", 3)) is not int or not 1 <= said.get("priority", 3) <= 5:
            return ntfy_error(400, 40007, "invalid request: priority must be between 1 and 5")
        if self.daily_max is not None and len(self.copies) >= self.daily_max:
            return ntfy_error(429, 42908, "limit reached: daily message quota reached")
        if self.wait_s(self._of_visitor):
            return ntfy_error(429, 42901, "limit reached: too many requests")
        text = f"{said.get('title', '')}\n{message}"
        copy = ProviderCopy(topic, str(said.get("sequence_id", "")), text, said)
        return copy, json_reaction(200, {"id": f"m{len(self.copies)}", "event": "message", "topic": topic})


def ntfy_error(status: int, code: int, error: str) -> HttpReaction:
    """An error as the server words it."""
    return json_reaction(status, {"code": code, "http": status, "error": error})
