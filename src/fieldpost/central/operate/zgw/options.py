"""Settings of the ZGW API."""

from dataclasses import dataclass

from fieldpost.core.delivery.retry import RetryPolicy, parse
from fieldpost.core.errors import ConfigError, InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class ZgwOptions:
    """[zgw]"""

    enabled: bool = False
    """Serve the ZGW Notificaties API under /notificaties/api/v1; needs `front.public_url`."""
    merge_repeats: bool = True
    """Treat a notification that a client sends again with the same content as the same event."""
    retry: str = "oneground"
    """When deliveries to abonnementen are retried: oneground, open-notificaties, or a retry policy."""
    require_rejection: bool = False
    """When an abonnement is created or changed, its callback must also reject a test without `auth`, by 401 or 403."""

    def __post_init__(self) -> None:
        self.retry_policy  # noqa: B018  raises if the text is invalid

    @property
    def retry_policy(self) -> RetryPolicy:
        try:
            return parse(self.retry)
        except InvalidInput as error:
            raise ConfigError("settings.retry", f"zgw.retry: {error.message}", field="zgw.retry") from None
