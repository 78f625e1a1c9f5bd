"""A stored secret must not be sent to a new host: a user who changes the host must give the secret again.

Otherwise a user who may change the settings, but not read the secret, could have it sent to a machine of their own.
"""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from fieldpost.core.errors import InvalidInput


def origin_of(url: object) -> object:
    """Scheme, host and port of a URL, to which a secret is sent; any other value unchanged."""
    if not isinstance(url, str):
        return url
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def check_destination(before: Mapping[str, object], after: Mapping[str, object], kept: Collection[str]) -> None:
    """Raise InvalidInput if a destination setting changes while a stored secret is kept.

    `before` and `after` hold the settings that decide where secrets are sent, `kept` the names of the secrets that were
    not given again.
    """
    moved = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if not kept or not moved:
        return
    secret = min(kept)
    raise InvalidInput(
        "settings.secret_again",
        f"{secret} must be given again, because {', '.join(moved)} changed: it would be sent to another place",
        hint=f"give it with the change; on the command line: --secret {secret}",
        field=f"secrets.{secret}",
    )
