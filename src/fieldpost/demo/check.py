"""The checks of `fieldpost demo --check`, made from outside: over HTTP on the inbox and the API."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

from fieldpost.core.errors import NotFound, Unavailable
from fieldpost.demo.central_api import CentralApi, moment
from fieldpost.demo.protocol import SentByScript
from fieldpost.demo.scenario import ALARM, ALARM_MEMBERS, FLAKY, GONE, HEALTHY, RECOVERING, REFUSALS, SITES, STEADY
from fieldpost.demo.webhooks import Receivers

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    is_so: bool
    text: str

    def __str__(self) -> str:
        return f"  {'ok  ' if self.is_so else 'NOT '} {self.text}"


async def findings(
    api: CentralApi, inbox_url: str, sent: Iterable[SentByScript], receivers: Receivers
) -> list[Finding]:
    """One finding per check. Raises FieldpostError if inbox or central does not answer."""
    mails = await _mails(inbox_url)
    reports = list(sent)
    return [
        _arrived([one for one in reports if one.list_name == HEALTHY], mails),
        await _retried(api, [one for one in reports if one.list_name == FLAKY and one.notification_id in mails]),
        await _parked(api, [one for one in reports if one.list_name == GONE]),
        _recovered(receivers),
        await _everywhere(api, [one for one in reports if one.list_name == ALARM], mails),
    ]


def _arrived(sent: list[SentByScript], mails: dict[str, str]) -> Finding:
    here = [one for one in sent if one.notification_id in mails]
    missing = [role.name for role in SITES if not any(one.site == role.name for one in here)]
    if missing:
        return Finding(False, f"notifications from {' and '.join(missing)} are in the inbox ({len(sent)} sent)")
    slowest = max((moment(mails[one.notification_id]) - moment(one.sent_at)).total_seconds() for one in here)
    sites = " and ".join(role.name for role in SITES)
    return Finding(True, f"{len(here)} notifications from {sites} are in the inbox, within {max(0.0, slowest):.1f} s")


async def _retried(api: CentralApi, in_inbox: list[SentByScript]) -> Finding:
    for one in in_inbox:
        found = await api.get("notifications", one.notification_id)
        outcomes = [attempt["outcome"] for attempt in found["attempts"]]
        if found["status"] == "delivered" and outcomes == ["transient_failure"] * REFUSALS + ["delivered"]:
            return Finding(
                True, f"“{one.subject}” was refused {REFUSALS} times ({found['attempts'][0]['error']}), then delivered"
            )
    return Finding(False, "a notification was refused, retried and delivered")


async def _parked(api: CentralApi, sent: list[SentByScript]) -> Finding:
    for one in sent:
        with suppress(NotFound):  # not yet forwarded
            found = await api.get("notifications", one.notification_id)
            if found["status"] == "parked":
                return Finding(True, f"“{one.subject}” is parked: {found['last_error']}")
    return Finding(False, "a notification is parked")


async def _everywhere(api: CentralApi, sent: list[SentByScript], mails: dict[str, str]) -> Finding:
    wanted = f"an alarm reached {', '.join(ALARM_MEMBERS)}"
    for one in sent:
        with suppress(NotFound):  # not yet forwarded
            found = await api.get("notifications", one.notification_id)
            parts = {part["list_name"]: part["notification_id"] for part in found["parts"]}
            if set(parts) == set(ALARM_MEMBERS) and all(part in mails for part in parts.values()):
                return Finding(True, f"“{one.subject}” reached {', '.join(sorted(parts))}")
    return Finding(False, wanted)


def _recovered(receivers: Receivers) -> Finding:
    refused, accepted = receivers.refused[RECOVERING], receivers.accepted[RECOVERING]
    if not (refused and accepted and receivers.accepted[STEADY]):
        return Finding(False, "a receiver of webhooks failed and got its events after it had recovered")
    return Finding(True, f"{RECOVERING} answered 503 to {refused}, then recovered and accepted {accepted} webhooks")


async def _mails(inbox_url: str) -> dict[str, str]:
    """The time of arrival of each notification's mail or message, by id."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S), trust_env=False) as session,
            session.get(f"{inbox_url}/mails.json") as response,
        ):
            mails = (await response.json())["mails"]
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise Unavailable("inbox.unreachable", f"the inbox does not answer: {error}") from error
    return {mail["x_fieldpost_id"]: mail["received_at"] for mail in mails if mail["x_fieldpost_id"]}
