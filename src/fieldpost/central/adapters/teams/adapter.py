"""The teams adapter: one request per workflow."""

from collections.abc import Mapping
from datetime import timedelta
from importlib.resources import files

import structlog

from fieldpost.central.adapters.answers import ReadAnswer
from fieldpost.central.adapters.hooks import HookAdapter, HookRequests
from fieldpost.central.adapters.provider import ProviderRequests, check_names, parsed_url
from fieldpost.central.adapters.teams.card import teams_card
from fieldpost.central.adapters.teams.classify import classify
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.rate import Rate
from fieldpost.core.secret import Secret
from fieldpost.outbound.client import HttpAnswer

RETIRED_HOST = ".webhook.office.com"
"""The Office 365 connectors, which Microsoft ended."""

log = structlog.get_logger()


class TeamsAdapter(HookAdapter):
    """Posts notifications as cards. A target is a label; its secret is the URL of a workflow."""

    type = "teams"
    target_secret_name = "Workflows URL"
    guide = (files("fieldpost.central.adapters.teams") / "guide.md").read_text("utf-8")
    channel_rate: Rate | None = None
    list_rate: Rate | None = Rate(1, timedelta(seconds=1))

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        check_names(settings, (), self.type)
        return {}

    def check_target_secret(self, secret: Secret) -> Secret:
        checked = super().check_target_secret(secret)
        if self.target_warnings(checked):
            # Accepted all the same: a rule on the host would break when Microsoft moves it again.
            log.warning("target.retired_host", host=_host(checked), hint="create a workflow in Teams and use its URL")
        return checked

    def target_warnings(self, secret: Secret) -> list[str]:
        host = _host(secret)
        text = f"its URL belongs to the retired connectors ({host}): create a workflow in Teams and set its URL"
        return [text] if host.endswith(RETIRED_HOST) else []

    def compose(self, envelope: Envelope, settings: Mapping[str, object]) -> ProviderRequests:
        return HookRequests(envelope, settings, teams_card(envelope))

    def classify(self, answer: HttpAnswer, retry_after: timedelta | None, settings: Mapping[str, object]) -> ReadAnswer:
        return classify(answer, retry_after)


def _host(secret: Secret) -> str:
    return parsed_url(secret.reveal()).raw_host or ""
