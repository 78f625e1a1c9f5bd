"""Delivery to a provider with an HTTP API: one request per target, a few targets at once.

Shared by the adapters for chat, push and text messages. An adapter makes the request for a target and reads the
provider's answer by its own `classify.py`; this module sends the requests and combines the results:

result of a request                  target               evidence   outcome
delivered, accepted                  delivered, accepted  works
failed                               failed               works
transient: 408, 5xx                  due                  fails      transient
too many requests                    due                  none       held until the pause ends
held by the answer                   due                  fails      held; no further target is tried
request sent, no answer              due                  fails      uncertain
not sent: name, connect, TLS, guard  due                  fails      held

Targets with separate URLs fail separately: an unreachable hook does not affect the others.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from typing import ClassVar
from urllib.parse import unquote

import structlog
from yarl import URL

from fieldpost import __version__
from fieldpost.central.adapters.answers import PAUSE_DEFAULT, ReadAnswer, Verdict, answer_text
from fieldpost.central.adapters.http import PROXY_PHASE, HttpAttempt, HttpRequest, occurring_phases
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.delivery.adapter import AttemptPhase, Envelope, SettingField
from fieldpost.core.delivery.outcome import (
    Delivered,
    Evidence,
    Held,
    Outcome,
    Pause,
    PermanentFailure,
    TransientFailure,
    Uncertain,
    fold,
    name_errors,
    scrubbed,
)
from fieldpost.core.delivery.quick_tries import QuickTries
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.core.quantities import plural
from fieldpost.core.secret import Scrubber, Secret
from fieldpost.outbound.client import HttpAnswer, HttpClient, NoAnswer
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.outbound import Outbound

DEADLINE_S = 30.0
"""The time limit of an attempt to all its targets."""
MARGIN = 0.02
"""Fraction of the deadline kept in reserve, so that an attempt can report its phase before it is cancelled."""
TARGETS_AT_ONCE = 8
USER_AGENT = f"Fieldpost/{__version__}"
NO_TRIES = QuickTries(repeats=0)
NO_SECRETS = Scrubber()
_MEMO_SIZE = 4096
_PARTS = re.compile(r"[^/?&=]{16,}")
"""The parts of a hook URL that are long enough to be its key. Shorter ones are words such as `workflows`."""

log = structlog.get_logger()

PHASES = (
    AttemptPhase(
        "queue", "Wait for a free connection", "Too many requests are in progress; see `[outbound] connections`."
    ),
    PROXY_PHASE,
    AttemptPhase("resolve", "Resolve the host name", "Check the host in the URL and this machine's name server."),
    AttemptPhase(
        "guard",
        "Check the address",
        "The host has a private or reserved address; an administrator can allow it with `[outbound] allow`.",
    ),
    AttemptPhase("connect", "Connect", "Check that a firewall lets connections to the provider pass."),
    AttemptPhase("tls", "TLS handshake", "Check the server's certificate: its host name, issuer and end date."),
    AttemptPhase("send", "Send the request", "The server closed the connection while the request was being sent."),
    AttemptPhase("answer", "Wait for the answer", "The guide below explains the provider's answers."),
)


@dataclass(slots=True)
class _Sent:
    """The result of the request for one target."""

    target: Target
    evidence: Evidence
    phase: str = "answer"
    reply: str | None = None
    is_held: bool = False
    is_uncertain: bool = False
    stops: bool = False
    """The whole channel is held or paused: nothing more is sent."""
    pause: Pause | None = None
    wait: timedelta | None = None


@dataclass(slots=True)
class _Progress:
    """The results of an attempt so far, in the order of the targets."""

    sent: list[_Sent] = field(default_factory=list)
    unrecorded: list[Target] = field(default_factory=list)


class ProviderAdapter(ABC):
    """The base of adapters for HTTP providers. Safe for concurrent attempts."""

    type: ClassVar[str]
    secrets: frozenset[str] = frozenset()
    fields: Sequence[SettingField] = ()
    phases: Sequence[AttemptPhase] = PHASES
    guide: str = ""
    has_strict_urls: ClassVar[bool] = False
    """Whether requests go to URLs of the lists' targets, not to one that an administrator set."""

    def __init__(
        self, *, outbound: Outbound | None = None, clock: Clock | None = None, deadline_s: float = DEADLINE_S
    ) -> None:
        self.deadline_s = deadline_s
        self._clock = clock or SystemClock()
        self._outbound = outbound or Outbound(clock=clock)
        self._is_outbound_ours = outbound is None
        self.phases = occurring_phases(self.phases, self._outbound.options)

    @abstractmethod
    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]: ...

    @abstractmethod
    def check_target(self, address: str) -> str: ...

    def target_key(self, address: str) -> str:
        return address

    @abstractmethod
    def compose(self, envelope: Envelope, settings: Mapping[str, object]) -> "ProviderRequests":
        """The requests of an attempt, from checked settings."""

    @abstractmethod
    def classify(self, answer: HttpAnswer, retry_after: timedelta | None, settings: Mapping[str, object]) -> ReadAnswer:
        """The meaning of an answer, by the table of the type."""

    async def check_hosts(self, settings: Mapping[str, object]) -> None:
        if isinstance(url := settings.get("url"), str):
            await self._outbound.admin_http.check_hosts(URL(url).raw_host or "", "url")

    async def close(self) -> None:
        if self._is_outbound_ours:
            await self._outbound.close()

    async def deliver(self, envelope: Envelope) -> Outcome:
        try:
            settings = self.check_settings(envelope.settings)
        except InvalidInput as error:
            reason = f"the channel's settings are invalid: {error.message}"
            return PermanentFailure(reason, phase="settings", evidence=Evidence.NONE)
        requests = self.compose(envelope, settings)
        scrub = requests.scrub = _scrubber(*_secrets(settings), *envelope.target_secrets.values())
        ends_at = self._clock.monotonic() + self.deadline_s * (1 - MARGIN)
        progress = _Progress()
        for group in _groups(envelope.targets):
            if progress.unrecorded:
                await envelope.record_reached(progress.unrecorded)
                progress.unrecorded = []
            if self._clock.monotonic() >= ends_at:
                break
            sending = [self._send(envelope, requests, one, ends_at, scrub) for one in group]
            sent = [await sending[0]] if len(sending) == 1 else await asyncio.gather(*sending)
            progress.sent += sent
            progress.unrecorded += [one.target for one in sent if _is_reached(one.target)]
            if any(one.stops for one in sent):
                break
        return scrubbed(_combined(envelope.targets, progress.sent), scrub)

    @property
    def _client(self) -> HttpClient:
        return self._outbound.strict_http if self.has_strict_urls else self._outbound.admin_http

    async def _send(
        self, envelope: Envelope, requests: "ProviderRequests", address: str, ends_at: float, scrub: Scrubber
    ) -> _Sent:
        transcript = envelope.transcript
        note = None if transcript is None else lambda line: transcript(scrub(line))
        read, truncated_to = await self.send_one(envelope, requests, address, ends_at, note)
        return _sent(Target(address, truncated_to=truncated_to), read)

    async def send_one(
        self,
        envelope: Envelope,
        requests: "ProviderRequests",
        address: str,
        ends_at: float,
        note: Callable[[str], None] | None,
    ) -> tuple[ReadAnswer | NoAnswer | Blocked, int | None]:
        """Send the request for a target: the provider's answer, and to how many characters the text was truncated.

        `note` takes the lines of a transcript. Adapters that do not send by the HTTP client override this."""
        attempt = HttpAttempt(self._client, self._clock, ends_at, NO_TRIES, gate=envelope.gate, transcript=note)
        await attempt.run(requests.request(address))
        read = self._read(attempt, requests)
        if isinstance(read, ReadAnswer) and read.verdict is Verdict.MOVED and read.address is not None:
            moved = read
            log.warning("target.moved", list=envelope.list_name, target=address, to=read.address)
            envelope.note_moved(address, read.address)
            await attempt.run(requests.request(read.address))
            read = self._read(attempt, requests)
            if isinstance(read, ReadAnswer):
                read = replace(read, text=f"{moved.text}; {read.text}", remark=moved.text)
        if note is not None and isinstance(attempt.result, HttpAnswer) and attempt.result.body:
            note(f"< {answer_text(_without_secrets(attempt.result, requests.scrub))}")
        return read, requests.truncated_to

    def _read(self, attempt: HttpAttempt, requests: "ProviderRequests") -> ReadAnswer | NoAnswer | Blocked:
        match attempt.result:
            case HttpAnswer() as answer:
                answer, asked_s = _without_secrets(answer, requests.scrub), attempt.retry_after_s
                return self.classify(answer, None if asked_s is None else timedelta(seconds=asked_s), requests.settings)
            case None:
                raise AssertionError("a finished attempt has a result")
            case failure:
                return failure


class ProviderRequests(ABC):
    """The requests of one attempt. The parts that all targets share are made once."""

    def __init__(self, settings: Mapping[str, object], truncated_to: int | None) -> None:
        self.settings = settings
        self.truncated_to = truncated_to
        """How many characters of subject and body are sent; None if both are whole."""
        self.scrub = NO_SECRETS
        """Removes the secrets of the attempt from texts."""

    @abstractmethod
    def request(self, address: str) -> HttpRequest: ...


def describe_origin(envelope: Envelope) -> str:
    """Severity, site and id in one line, for the end of a message. The id is the same at every attempt."""
    state = "cleared" if envelope.is_cleared else envelope.severity
    site = envelope.provenance.site if envelope.provenance is not None else None
    return " · ".join(part for part in (state, site, envelope.notification_id) if part)


def check_names(settings: Mapping[str, object], names: Sequence[str], type: str) -> None:
    """Raise InvalidInput for a setting that channels of this type do not have."""
    for name in settings:
        if name not in names:
            shown = repr(name)[:64]
            has = f"has: {', '.join(names)}" if names else "has no settings"
            raise InvalidInput(
                "settings.unknown", f"unknown setting {shown}; a {type} channel {has}", field=shown.strip("'")
            )


@lru_cache(maxsize=_MEMO_SIZE)
def parsed_url(url: str) -> URL:
    return URL(url)


def _groups(targets: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(targets), TARGETS_AT_ONCE):
        yield targets[start : start + TARGETS_AT_ONCE]


def _is_reached(target: Target) -> bool:
    return target.status in (TargetStatus.DELIVERED, TargetStatus.ACCEPTED)


def _sent(target: Target, read: ReadAnswer | NoAnswer | Blocked) -> _Sent:
    match read:
        case ReadAnswer():
            return _answered(target, read)
        case NoAnswer() if read.is_sent:
            error = f"the request was sent, but {read.reason[:1].lower()}{read.reason[1:]}"
            return _Sent(replace(target, error=error), Evidence.FAILS, read.phase.value, is_uncertain=True)
        case NoAnswer():
            return _Sent(replace(target, error=read.reason), Evidence.FAILS, read.phase.value, is_held=True)
        case blocked:
            return _Sent(replace(target, error=str(blocked)), Evidence.FAILS, "guard", is_held=True)


def _answered(target: Target, read: ReadAnswer) -> _Sent:
    match read.verdict:
        case Verdict.DELIVERED:
            delivered = replace(target, status=TargetStatus.DELIVERED, error=read.remark)
            return _Sent(delivered, Evidence.WORKS, reply=read.text)
        case Verdict.ACCEPTED:
            accepted = replace(target, status=TargetStatus.ACCEPTED, provider_id=read.provider_id)
            return _Sent(accepted, Evidence.WORKS, reply=read.text)
        case Verdict.FAILED:
            failed = Target(target.address, TargetStatus.FAILED, read.text)
            return _Sent(failed, Evidence.WORKS, reply=read.text)
        case Verdict.TRANSIENT | Verdict.MOVED:
            due = Target(target.address, error=read.text)
            return _Sent(due, Evidence.FAILS, reply=read.text, wait=read.wait)
        case Verdict.PAUSED | Verdict.CHANNEL_PAUSED:
            is_channel = read.verdict is Verdict.CHANNEL_PAUSED
            pause = Pause(read.wait or PAUSE_DEFAULT, read.text, None if is_channel else target.address)
            return _Sent(Target(target.address), Evidence.NONE, reply=read.text, pause=pause, stops=is_channel)
        case Verdict.HELD:
            due = Target(target.address, error=read.text)
            return _Sent(due, Evidence.FAILS, reply=read.text, is_held=True, stops=True)


def _combined(addresses: Sequence[str], sent: Sequence[_Sent]) -> Outcome:
    """One outcome for the whole attempt. A path works if any of its targets did."""
    first = sent[0] if sent else _Sent(Target(""), Evidence.NONE)
    if len(sent) == len(addresses) and all(_is_plain_delivery(one.target) for one in sent):
        return Delivered(reply=first.reply, phase=first.phase)
    targets = (*(one.target for one in sent), *(Target(address) for address in addresses[len(sent) :]))
    due = [one for one in sent if one.target.status is TargetStatus.DUE]
    pauses = tuple(one.pause for one in due if one.pause is not None)
    shown = [one.evidence for one in sent]
    evidence = next((one for one in (Evidence.WORKS, Evidence.FAILS) if one in shown), Evidence.NONE)
    blame = next((one for one in due if one.is_uncertain), None) or next((one for one in due if one.is_held), None)
    errors = name_errors([one.target for one in due if one.pause is None], TargetStatus.DUE)
    if blame is not None and blame.is_uncertain:
        return Uncertain(errors, targets, None, blame.reply, blame.phase, evidence, pauses=pauses)
    has_stopped = any(one.is_held and one.stops for one in due)
    is_all_held = due and all(one.is_held or one.pause is not None for one in due)
    if blame is not None and (has_stopped or (is_all_held and evidence is not Evidence.WORKS)):
        named = () if len(due) == len(sent) else targets
        return Held(errors, blame.reply, blame.phase, Evidence.FAILS, targets=named, pauses=pauses)
    outcome = fold(targets, first.reply, (blame or first).phase, pauses)
    if isinstance(outcome, TransientFailure):
        waits = [one.wait for one in due if one.wait is not None]
        outcome = replace(outcome, retry_after=max(waits, default=None), evidence=evidence)
        if len(sent) < len(addresses) and not outcome.error:
            outcome = replace(outcome, error=f"{plural(len(addresses) - len(sent), 'target')} not tried in time")
    return outcome


def _is_plain_delivery(target: Target) -> bool:
    return target.status is TargetStatus.DELIVERED and target.truncated_to is None and target.error is None


def _secrets(settings: Mapping[str, object]) -> list[Secret]:
    return [value for value in settings.values() if isinstance(value, Secret)]


def _without_secrets(answer: HttpAnswer, scrub: Scrubber) -> HttpAnswer:
    """The answer without the secrets that it repeats. Before it is read: the texts made of it are truncated, and half a
    secret would not be recognized."""
    if not scrub or not answer.body:
        return answer
    text = answer.body.decode("utf-8", "replace")
    cleaned = scrub(text)
    return answer if cleaned == text else replace(answer, body=cleaned.encode())


@lru_cache(maxsize=_MEMO_SIZE)
def _scrubber(*secrets: Secret) -> Scrubber:
    return Scrubber(part for secret in secrets for part in _hidden_parts(secret))


def _hidden_parts(secret: Secret) -> Iterator[Secret]:
    """The parts of a secret to remove from texts: of a URL everything but its host, and each long part alone."""
    text = secret.reveal()
    hidden = URL(text).raw_path_qs if text.startswith("https://") else ""
    if len(hidden) <= 1:
        yield secret
        return
    yield Secret(hidden)
    for part in _PARTS.findall(hidden):
        yield Secret(part)
        yield Secret(unquote(part))
