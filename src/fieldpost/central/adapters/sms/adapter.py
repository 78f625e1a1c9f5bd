"""The sms adapter: one request per number, in the dialect of the gateway."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.resources import files

from yarl import URL

from fieldpost.central.adapters.answers import ReadAnswer
from fieldpost.central.adapters.http import HttpAttempt
from fieldpost.central.adapters.provider import MARGIN, NO_TRIES, TARGETS_AT_ONCE, ProviderAdapter, ProviderRequests
from fieldpost.central.adapters.sms.classify import classify_http, classify_kannel, classify_twilio
from fieldpost.central.adapters.sms.description import FIELDS
from fieldpost.central.adapters.sms.gateway import GatewayRequests
from fieldpost.central.adapters.sms.kannel import KannelRequests, read_kannel
from fieldpost.central.adapters.sms.settings import SECRETS, PlainHttp, SmsDialect, check_sms_settings
from fieldpost.central.adapters.sms.text import sms_cost, sms_text
from fieldpost.central.adapters.sms.twilio import TwilioRequests, read_status, read_twilio, status_request
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.receipt import Callback, Receipt
from fieldpost.core.errors import InvalidInput
from fieldpost.core.sms.phone_number import check_number
from fieldpost.core.sms.segments import SEGMENTS_MAX_DEFAULT
from fieldpost.outbound.client import HttpAnswer


class SmsAdapter(ProviderAdapter):
    """Sends notifications as text messages. A target is a phone number in E.164."""

    type = "sms"
    secrets = SECRETS
    fields = FIELDS
    guide = (files("fieldpost.central.adapters.sms") / "guide.md").read_text("utf-8")
    can_ask = True

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        return check_sms_settings(settings)

    def warnings(self, settings: Mapping[str, object]) -> list[str]:
        is_plain = settings.get("plain_http") == PlainHttp.ALLOW and str(settings.get("url", "")).startswith("http:")
        text = "url begins with http://: anybody on the network can read the password and the texts"
        return [text] if is_plain else []

    def text_cost(self, envelope: Envelope) -> str:
        segments_max = envelope.settings.get("segments_max")
        return sms_cost(envelope, segments_max if isinstance(segments_max, int) else SEGMENTS_MAX_DEFAULT)

    def needs_callbacks(self, settings: Mapping[str, object]) -> bool:
        return settings.get("dialect") == SmsDialect.KANNEL

    async def check_hosts(self, settings: Mapping[str, object]) -> None:
        if isinstance(url := settings.get("url"), str):
            await self._outbound.admin.check_hosts(URL(url.partition("?")[0]).raw_host or "", "url")

    def check_target(self, address: str) -> str:
        return check_number(address)

    def compose(self, envelope: Envelope, settings: Mapping[str, object]) -> ProviderRequests:
        segments_max = settings["segments_max"]
        assert isinstance(segments_max, int)
        fitted = sms_text(envelope, segments_max)
        match SmsDialect(str(settings["dialect"])):
            case SmsDialect.KANNEL:
                return KannelRequests(envelope, settings, fitted)
            case SmsDialect.TWILIO:
                return TwilioRequests(envelope, settings, fitted)
            case SmsDialect.HTTP:
                return GatewayRequests(envelope, settings, fitted)

    def classify(self, answer: HttpAnswer, retry_after: timedelta | None, settings: Mapping[str, object]) -> ReadAnswer:
        match SmsDialect(str(settings["dialect"])):
            case SmsDialect.KANNEL:
                return classify_kannel(answer, retry_after)
            case SmsDialect.TWILIO:
                return classify_twilio(answer, retry_after)
            case SmsDialect.HTTP:
                return classify_http(answer, retry_after, settings)

    async def ask(self, settings: Mapping[str, object], provider_ids: Sequence[str]) -> Sequence[Receipt]:
        """The state of these messages at Twilio; the other dialects cannot be asked."""
        try:
            checked = self.check_settings(settings)
        except InvalidInput:
            return ()
        if checked["dialect"] != SmsDialect.TWILIO:
            return ()
        ends_at = self._clock.monotonic() + self.deadline_s * (1 - MARGIN)
        slots = asyncio.Semaphore(TARGETS_AT_ONCE)

        async def one(provider_id: str) -> Receipt | None:
            async with slots:
                attempt = HttpAttempt(self._client, self._clock, ends_at, NO_TRIES)
                await attempt.run(status_request(checked, provider_id))
            return read_status(attempt.result, provider_id) if isinstance(attempt.result, HttpAnswer) else None

        return [receipt for receipt in await asyncio.gather(*map(one, provider_ids)) if receipt is not None]

    def read_callback(self, settings: Mapping[str, object], callback: Callback) -> Receipt:
        checked = self.check_settings(settings)
        match SmsDialect(str(checked["dialect"])):
            case SmsDialect.KANNEL:
                return read_kannel(callback)
            case SmsDialect.TWILIO:
                return read_twilio(checked, callback)
            case SmsDialect.HTTP:
                raise InvalidInput("receipt.unexpected", "gateways of dialect http send no receipts", field="dialect")
