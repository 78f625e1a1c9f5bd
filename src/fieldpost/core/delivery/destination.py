"""A stored secret must not be sent to a new host: a user who changes the host must give the secret again.

Otherwise a user who may change the settings, but not read the secret, could have it sent to a machine of their own.
"""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from fieldpost.core.delivery.adapter import Described, SecretTargets
from fieldpost.core.delivery.routing import Directory, channel_of
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import Channel


def origin_of(url: object) -> object:
    """Scheme, host and port of a URL, to which a secret is sent; any other value unchanged."""
    if not isinstance(url, str):
        return url
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def destination_of(adapter: object, channel: Channel) -> dict[str, object]:
    """The settings of a channel that decide where secrets are sent: all of them, unless the adapter describes them."""
    if not isinstance(adapter, Described):
        return dict(channel.settings)
    return {field.name: channel.settings.get(field.name) for field in adapter.fields if field.is_destination}


def redirected_lists(before: Directory, after: Directory, adapters: Mapping[str, object]) -> list[str]:
    """The lists whose targets' secrets are sent to another place after a change of lists or channels.

    Secrets that are URLs themselves stay where they are. Before a list has a channel, its secrets are meant for the
    default place of its type.
    """
    found = []
    for name, one in after.lists.items():
        old, adapter, channel = before.lists.get(name), adapters.get(one.type), channel_of(after, one)
        if old is None or channel is None or not isinstance(adapter, SecretTargets) or adapter.has_own_urls:
            continue
        was = channel_of(before, old)
        place = _default_destination(adapter) if was is None else destination_of(adapter, was)
        if destination_of(adapter, channel) != place:
            found.append(name)
    return found


def _default_destination(adapter: object) -> dict[str, object]:
    fields = adapter.fields if isinstance(adapter, Described) else ()
    return {field.name: field.default for field in fields if field.is_destination}


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
