"""Providers whose targets are incoming webhooks: the target is a label, and its secret is the URL of the hook.

Anyone who knows such a URL can post, so texts contain only its host. Hooks go through the strict
client, with no rule on the host name: providers move it, and proxies and compatible servers have names of their own.
"""

from collections.abc import Mapping
from ipaddress import ip_address

from fieldpost.central.adapters.http import HttpRequest
from fieldpost.central.adapters.provider import USER_AGENT, ProviderAdapter, ProviderRequests, parsed_url
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.fitting import Fitted
from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.core.text import check_label
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.url import check_url

LABEL_BYTES_MAX = 128
SECRET_FIELD = "secret"


class HookAdapter(ProviderAdapter):
    """The base of adapters for incoming webhooks."""

    target_secret_name = "hook URL"
    has_own_urls = True
    has_strict_urls = True

    def check_target(self, address: str) -> str:
        return check_target_label(address)

    def check_target_secret(self, secret: Secret) -> Secret:
        url = check_url(secret.reveal(), "strict", SECRET_FIELD)
        if url.scheme != "https":
            raise InvalidInput("url.plain", f"{SECRET_FIELD} must begin with https://", field=SECRET_FIELD)
        try:
            address = ip_address(url.raw_host or "")
        except ValueError:
            return Secret(str(url))
        try:
            self._outbound.strict.check(address, url.raw_host or "")
        except Blocked as error:
            raise InvalidInput("url.blocked", f"{SECRET_FIELD}: {error}", field=SECRET_FIELD) from None
        return Secret(str(url))


class HookRequests(ProviderRequests):
    """The same message to each hook."""

    def __init__(self, envelope: Envelope, settings: Mapping[str, object], fitted: Fitted[bytes]) -> None:
        super().__init__(settings, fitted.truncated_to)
        self._secrets = envelope.target_secrets
        self._body = fitted.message
        self._headers = {"User-Agent": USER_AGENT, "Content-Type": "application/json"}

    def request(self, address: str) -> HttpRequest:
        return HttpRequest(url=parsed_url(self._secrets[address].reveal()), headers=self._headers, body=self._body)


def check_target_label(address: str) -> str:
    """The label of a target with a secret, or InvalidInput."""
    label = check_label(address, "target", LABEL_BYTES_MAX)
    if not label.isprintable():
        raise InvalidInput("target.label", "target must be printable characters", field="target")
    if "://" in label:
        # A URL here is a secret in the wrong field. The error must not repeat it.
        raise InvalidInput(
            "target.label", "target must be a label such as night-shift; the URL is its secret", field="target"
        )
    return label
