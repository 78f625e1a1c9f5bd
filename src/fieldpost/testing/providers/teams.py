"""Workflows of Microsoft Teams that post the card of a request."""

from datetime import timedelta
from typing import Any

from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.providers.server import (
    ProviderCopy,
    ProviderServer,
    RequestLimit,
    id_in,
    json_of,
    json_reaction,
)

MESSAGE_BYTES_MAX = 28 * 1024
CARD = "application/vnd.microsoft.card.adaptive"


class FakeTeams(ProviderServer):
    """The workflows of one environment: `teams.hook("night-shift")` is the URL of one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.errors: dict[str, tuple[int, str]] = {}
        """The answer of a workflow: status and text."""
        self._of_flow = RequestLimit(4, timedelta(seconds=1))

    def hook(self, name: str, url: str | None = None) -> str:
        """The URL of a workflow; at another server if given."""
        query = f"api-version=1&sp=/triggers/manual/run&sv=1.0&sig={name}"
        return (
            f"{url or self.url}/powerautomate/automations/direct/workflows/{name}/triggers/manual/paths/invoke?{query}"
        )

    def answer(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        parts = request.path.split("/")
        if len(parts) < 6 or parts[4] != "workflows":
            return _error(404, "WorkflowNotFound")
        name = parts[5]
        if f"sig={name}" not in request.query.split("&"):
            return _error(401, "DirectApiAuthorizationRequired")
        if name in self.errors:
            status, text = self.errors[name]
            return HttpReaction(status=status, body=text.encode())
        if len(request.body) > MESSAGE_BYTES_MAX:
            return _error(413, "RequestEntityTooLarge")
        match json_of(request):
            case {"type": "message", "attachments": [{"contentType": kind, "content": dict(card)}]} if kind == CARD:
                pass
            case _:
                return _error(400, "TriggerInputSchemaMismatch")
        if card.get("type") != "AdaptiveCard" or card.get("version") != "1.4":
            return _error(400, "BadRequest")
        if self.wait_s(self._of_flow, name):
            return _error(429, "WorkflowRunActionThrottled")
        shown = "\n".join("".join(run["text"] for run in block["inlines"]) for block in card["body"])
        return ProviderCopy(name, id_in(shown), shown, card), HttpReaction(status=202)


def _error(status: int, code: str) -> HttpReaction:
    return json_reaction(status, {"error": {"code": code, "message": code}})
