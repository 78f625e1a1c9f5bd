"""The pagerduty adapter: one event per integration."""

import re
from collections.abc import Mapping
from datetime import timedelta
from importlib.resources import files

from fieldpost.central.adapters.answers import ReadAnswer
from fieldpost.central.adapters.hooks import check_target_label
from fieldpost.central.adapters.http import HttpRequest
from fieldpost.central.adapters.pagerduty.classify import classify
from fieldpost.central.adapters.pagerduty.event import pagerduty_event
from fieldpost.central.adapters.provider import USER_AGENT, ProviderAdapter, ProviderRequests, check_names, parsed_url
from fieldpost.core.delivery.adapter import Envelope, SettingField
from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.outbound.client import HttpAnswer
from fieldpost.outbound.url import check_url

URL_DEFAULT = "https://events.pagerduty.com"
_KEY = re.compile(r"[0-9A-Za-z]{32}", re.ASCII)


class PagerDutyAdapter(ProviderAdapter):
    """Sends notifications as events. A target is a label; its secret is the routing key of an integration."""

    type = "pagerduty"
    target_secret_name = "routing key"
    has_own_urls = False
    fields = (
        SettingField(
            name="url",
            doc="base URL of the Events API; https://events.eu.pagerduty.com for accounts in Europe",
            default=URL_DEFAULT,
            is_destination=True,
        ),
    )
    guide = (files("fieldpost.central.adapters.pagerduty") / "guide.md").read_text("utf-8")

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        check_names(settings, ("url",), self.type)
        return {"url": str(check_url(settings.get("url") or URL_DEFAULT, "admin")).rstrip("/")}

    def check_target(self, address: str) -> str:
        return check_target_label(address)

    def check_target_secret(self, secret: Secret) -> Secret:
        if not _KEY.fullmatch(secret.reveal()):
            raise InvalidInput(
                "routing_key.invalid", "secret must be a routing key of 32 letters and digits", field="secret"
            )
        return secret

    def compose(self, envelope: Envelope, settings: Mapping[str, object]) -> ProviderRequests:
        return _Events(envelope, settings)

    def classify(self, answer: HttpAnswer, retry_after: timedelta | None, settings: Mapping[str, object]) -> ReadAnswer:
        return classify(answer, retry_after)


class _Events(ProviderRequests):
    def __init__(self, envelope: Envelope, settings: Mapping[str, object]) -> None:
        fitted = pagerduty_event(envelope)
        super().__init__(settings, fitted.truncated_to)
        self._members = fitted.message
        self._keys = envelope.target_secrets
        self._url = parsed_url(f"{settings['url']}/v2/enqueue")

    def request(self, address: str) -> HttpRequest:
        body = b'{"routing_key":"%b",%b' % (self._keys[address].reveal().encode(), self._members)
        headers = {"User-Agent": USER_AGENT, "Content-Type": "application/json"}
        return HttpRequest(url=self._url, headers=headers, body=body)
