"""PagerDuty's Events API v2, with the alerts that its events open and resolve."""

import re
from datetime import timedelta
from typing import Any

from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.providers.server import ProviderCopy, ProviderServer, RequestLimit, json_of, json_reaction

EVENT_BYTES_MAX = 512 * 1024
SUMMARY_MAX = 1024
KEY_MAX = 255
SEVERITIES = ("critical", "error", "warning", "info")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)")


class FakePagerDuty(ProviderServer):
    """One account. `keys` are the routing keys by name of the integration."""

    def __init__(self, keys: dict[str, str], **options: Any) -> None:
        super().__init__(**options)
        self.keys = keys
        self.alerts: dict[tuple[str, str], str] = {}
        """The summaries of open alerts by integration and key."""
        self._of_integration = RequestLimit(120, timedelta(minutes=1))

    def answer(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        if (request.method, request.path) != ("POST", "/v2/enqueue"):
            return HttpReaction(status=404)
        said = json_of(request)
        if said is None or len(request.body) > EVENT_BYTES_MAX:
            return _invalid("JSON is invalid or too large")
        name = next((name for name, key in self.keys.items() if key == said.get("routing_key")), None)
        if name is None:
            return _invalid("'routing_key' is invalid")
        if (error := _error(said)) is not None:
            return _invalid(error)
        if self.wait_s(self._of_integration, name):
            return json_reaction(429, {"status": "throttle exceeded", "message": "Requests for this service ..."})
        key, payload = said.get("dedup_key") or "generated", said.get("payload", {})
        if said["event_action"] == "resolve":
            self.alerts.pop((name, key), None)
        else:
            self.alerts.setdefault((name, key), payload["summary"])
        details = payload.get("custom_details", {})
        text = f"{payload.get('summary', '')}\n{details.get('body', '')}"
        copy = ProviderCopy(name, details.get("id", key), text, said)
        return copy, json_reaction(202, {"status": "success", "message": "Event processed", "dedup_key": key})


def _error(said: dict[str, Any]) -> str | None:
    if said.get("event_action") not in ("trigger", "acknowledge", "resolve"):
        return "'event_action' is invalid"
    if len(said.get("dedup_key") or "") > KEY_MAX:
        return "'dedup_key' is too long"
    if said["event_action"] != "trigger":
        return None
    match said.get("payload"):
        case {"summary": str(summary), "source": str(source), "severity": severity} if summary and source:
            if len(summary) > SUMMARY_MAX:
                return "'payload.summary' is too long"
            if severity not in SEVERITIES:
                return "'payload.severity' is invalid"
        case _:
            return "'payload.summary' is missing or blank"
    stamp = said["payload"].get("timestamp")
    return "'payload.timestamp' is invalid" if stamp is not None and not _TIME.fullmatch(stamp) else None


def _invalid(error: str) -> HttpReaction:
    return json_reaction(400, {"status": "invalid event", "message": "Event object is invalid", "errors": [error]})
