"""The ntfy adapter: one message per topic."""

import re
from collections.abc import Mapping
from datetime import timedelta
from importlib.resources import files

from fieldpost.central.adapters.answers import ReadAnswer
from fieldpost.central.adapters.http import HttpRequest
from fieldpost.central.adapters.ntfy.classify import classify
from fieldpost.central.adapters.ntfy.message import ntfy_json
from fieldpost.central.adapters.provider import USER_AGENT, ProviderAdapter, ProviderRequests, check_names, parsed_url
from fieldpost.core.delivery.adapter import Envelope, SettingField
from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret, check_secret
from fieldpost.outbound.client import HttpAnswer
from fieldpost.outbound.url import check_url

_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_TOKEN = re.compile(r"[!-~]{1,512}", re.ASCII)


class NtfyAdapter(ProviderAdapter):
    """Publishes notifications on an ntfy server. A target is a topic."""

    type = "ntfy"
    secrets = frozenset({"token"})
    fields = (
        SettingField(
            name="url",
            doc="base URL of the server, such as https://ntfy.example.org",
            is_required=True,
            is_destination=True,
        ),
        SettingField(name="token", doc="access token of a user who may write to the topics", default="none"),
    )
    guide = (files("fieldpost.central.adapters.ntfy") / "guide.md").read_text("utf-8")

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        check_names(settings, ("url", "token"), self.type)
        checked: dict[str, object] = {"url": str(check_url(settings.get("url"), "admin")).rstrip("/")}
        if (given := settings.get("token")) is not None:
            token = given if isinstance(given, Secret) else check_secret(given, "token")
            if not _TOKEN.fullmatch(token.reveal()):
                raise InvalidInput("settings.invalid", "token must be printable ASCII without spaces", field="token")
            checked["token"] = token
        return checked

    def check_target(self, address: str) -> str:
        if not _TOPIC.fullmatch(address):
            raise InvalidInput(
                "topic.invalid", "target must be a topic of 1 to 64 letters, digits, - or _", field="target"
            )
        return address

    def compose(self, envelope: Envelope, settings: Mapping[str, object]) -> ProviderRequests:
        return _Messages(envelope, settings)

    def classify(self, answer: HttpAnswer, retry_after: timedelta | None, settings: Mapping[str, object]) -> ReadAnswer:
        return classify(answer, retry_after)


class _Messages(ProviderRequests):
    def __init__(self, envelope: Envelope, settings: Mapping[str, object]) -> None:
        fitted = ntfy_json(envelope)
        super().__init__(settings, fitted.truncated_to)
        self._members = fitted.message
        self._url = parsed_url(f"{settings['url']}/")
        self._headers = {"User-Agent": USER_AGENT, "Content-Type": "application/json"}
        if isinstance(token := settings.get("token"), Secret):
            self._headers["Authorization"] = f"Bearer {token.reveal()}"

    def request(self, address: str) -> HttpRequest:
        body = f'{{"topic":"{address}",{self._members}}}'.encode()
        return HttpRequest(url=self._url, headers=self._headers, body=body)
