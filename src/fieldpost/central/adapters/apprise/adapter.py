"""The Apprise adapter: a target is a label with an Apprise URL, sent in a child process under our guard."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib.resources import files
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

from fieldpost.central.adapters import NotInstalled
from fieldpost.central.adapters.answers import ReadAnswer, by_status
from fieldpost.central.adapters.apprise.classify import classify
from fieldpost.central.adapters.apprise.schemas import HTTP_SCHEMAS
from fieldpost.central.adapters.hooks import SECRET_FIELD, HookAdapter
from fieldpost.central.adapters.http import HttpRequest
from fieldpost.central.adapters.provider import DEADLINE_S, ProviderRequests, check_names, describe_origin
from fieldpost.child_process import ChildPool
from fieldpost.clock import Clock
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Severity
from fieldpost.core.secret import Scrubber, Secret
from fieldpost.outbound.client import HttpAnswer, NoAnswer
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.progress import HttpPhase

CHILDREN = 4
URL_CHARACTERS_MAX = 2048
SECRET_PART_MIN = 6
"""Shorter parts of a URL, such as port and `v1`, are not removed from texts."""
_URL = re.compile(r"([a-z0-9]{2,32})://[!-~]+", re.ASCII)
_ANOTHER = re.compile(r"[,;][a-z0-9]{2,32}://", re.ASCII)
_KINDS = {
    Severity.INFO: "info",
    Severity.WARNING: "warning",
    Severity.ERROR: "failure",
    Severity.CRITICAL: "failure",
}


class AppriseAdapter(HookAdapter):
    """Sends through Apprise. Its child processes start with the first delivery."""

    type = "apprise"
    fields = ()
    guide = (files("fieldpost.central.adapters.apprise") / "guide.md").read_text("utf-8")
    target_secret_name = "Apprise URL"

    def __init__(
        self,
        *,
        outbound: Outbound | None = None,
        clock: Clock | None = None,
        deadline_s: float = DEADLINE_S,
        children: int = CHILDREN,
    ) -> None:
        if find_spec("apprise") is None:
            raise NotInstalled("install fieldpost[apprise] for channels of type apprise")
        super().__init__(outbound=outbound, clock=clock, deadline_s=deadline_s)
        self._children = ChildPool("fieldpost.central.adapters.apprise.child", children)

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        check_names(settings, (), self.type)
        return {}

    def check_target_secret(self, secret: Secret) -> Secret:
        """One Apprise URL of a service over HTTP. The errors name its schema at most."""
        text = secret.reveal()
        found = _URL.fullmatch(text)
        if len(text) > URL_CHARACTERS_MAX or found is None:
            raise _invalid(
                f"must be an Apprise URL of at most {URL_CHARACTERS_MAX} printable characters without spaces"
            )
        if _ANOTHER.search(text):
            raise _invalid("must be one URL; add a target for each of them")
        if found[1] not in HTTP_SCHEMAS:
            raise _invalid(f"{found[1]}:// is not a service that Apprise reaches over HTTP")
        return secret

    def compose(self, envelope: Envelope, settings: Mapping[str, object]) -> ProviderRequests:
        return _NoRequests(settings, None)

    def classify(self, answer: HttpAnswer, retry_after: timedelta | None, settings: Mapping[str, object]) -> ReadAnswer:
        return by_status(answer, retry_after)

    async def start(self) -> None:
        """Start a child process before it is needed."""
        await self._children.start()

    async def close(self) -> None:
        await self._children.close()
        await super().close()

    async def send_one(
        self,
        envelope: Envelope,
        requests: ProviderRequests,
        address: str,
        ends_at: float,
        note: Callable[[str], None] | None,
    ) -> tuple[ReadAnswer | NoAnswer | Blocked, int | None]:
        url = envelope.target_secrets[address].reveal()
        scrub = _scrubber(url)
        # Before the wait for a child: all targets that are sent at once pass the gate before any of them is reached.
        envelope.gate()
        if note is not None:
            note(f"> {url.partition(':')[0]}://***")
        is_sent = False
        try:
            async with (
                asyncio.timeout(max(ends_at - self._clock.monotonic(), 0.0)),
                self._children.slot(),
                self._children.child() as child,
            ):
                child.begin(self._job(envelope, url, ends_at - self._clock.monotonic()))
                while "sent" in (answer := json.loads(await child.line())):
                    is_sent = True
                child.end()
        except TimeoutError:
            phase = HttpPhase.ANSWER if is_sent else HttpPhase.CONNECT
            reason = f"no {'answer' if is_sent else 'connection'} within {self.deadline_s:g} s"
            return NoAnswer(reason, phase, is_sent=is_sent, is_timeout=True), None
        except (EOFError, OSError) as error:
            reason = f"the Apprise process ended: {type(error).__name__}"
            return NoAnswer(reason, HttpPhase.QUEUE, is_sent=is_sent), None
        # Before it is read: the texts made of it are truncated, and half a secret would not be recognized.
        for one in answer.get("answers", ()):
            one["text"] = scrub(one["text"])
        read = _scrubbed(classify(answer, self._clock.now()), scrub)
        if note is not None:
            note(f"< {read.text if isinstance(read, ReadAnswer) else read}")
        return read, answer.get("truncated_to")

    def _job(self, envelope: Envelope, url: str, timeout_s: float) -> bytes:
        options = self._outbound.options
        proxy = options.proxy_server()
        job = {
            "url": url,
            "subject": envelope.subject,
            "body": envelope.body,
            "end": describe_origin(envelope) + (f"\n{envelope.link}" if envelope.link else ""),
            "kind": "success" if envelope.is_cleared else _KINDS.get(envelope.severity or Severity.INFO, "info"),
            "timeout_s": max(timeout_s, 0.1),
            "allow": options.allow.split(),
            "proxy": None
            if proxy is None
            else {
                "host": proxy.host,
                "port": proxy.port,
                "user": proxy.user,
                "password": proxy.password.reveal(),
            },
        }
        return json.dumps(job).encode()


class _NoRequests(ProviderRequests):
    """Apprise makes the requests."""

    def request(self, address: str) -> HttpRequest:
        raise AssertionError("requests are made in the child process")


def _scrubber(url: str) -> Scrubber:
    """Removes the credentials of an Apprise URL: user, password, and the parts of path and query."""
    parts = urlsplit(url)
    pieces = [url, parts.username or "", parts.password or "", *re.split(r"[/?&=]", f"{parts.path}?{parts.query}")]
    # The host of most schemas is a token.
    pieces.append(parts.netloc.rpartition("@")[2].partition(":")[0])
    hidden = {text for piece in pieces for text in (piece, unquote(piece)) if len(text) >= SECRET_PART_MIN}
    return Scrubber([Secret(text) for text in sorted(hidden)])


def _scrubbed(read: ReadAnswer | NoAnswer | Blocked, scrub: Scrubber) -> ReadAnswer | NoAnswer | Blocked:
    match read:
        case ReadAnswer():
            return ReadAnswer(read.verdict, scrub(read.text), read.wait)
        case NoAnswer():
            return NoAnswer(scrub(read.reason), read.phase, is_sent=read.is_sent, is_timeout=read.is_timeout)
        case Blocked():
            return read


def _invalid(rule: str) -> InvalidInput:
    return InvalidInput("apprise.url", f"the Apprise URL {rule}", field=SECRET_FIELD)
