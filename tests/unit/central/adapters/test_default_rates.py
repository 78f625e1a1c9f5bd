"""The rates of channels and lists without a rate of their own are within the limits of the providers."""

import pytest

from fieldpost.central.adapters.ntfy.adapter import NtfyAdapter
from fieldpost.central.adapters.provider import ProviderAdapter
from fieldpost.central.adapters.slack.adapter import SlackAdapter
from fieldpost.central.adapters.sms.adapter import SmsAdapter
from fieldpost.central.adapters.teams.adapter import TeamsAdapter
from fieldpost.central.adapters.telegram.adapter import TelegramAdapter
from fieldpost.core.delivery.routing import traits_of


@pytest.mark.req("CHN-03")
@pytest.mark.parametrize(
    ("kind", "of_channel", "of_list"),
    [
        (TeamsAdapter, None, "1/1s"),
        (SlackAdapter, None, "1/1s"),
        (TelegramAdapter, "25/1s", "20/1m"),
        (NtfyAdapter, None, None),
        (SmsAdapter, None, None),
    ],
)
def test_each_type_has_its_rates(kind: type[ProviderAdapter], of_channel: str | None, of_list: str | None) -> None:
    traits = traits_of(kind())
    rates = [rate and rate.text for rate in (traits.channel_rate, traits.list_rate)]
    assert rates == [of_channel, of_list]
