"""OAuth2 tokens by client credentials (RFC 6749, 4.4), shared by all callers and renewed early.

Tokens are cached by credential, including its secret. After four fifths of its lifetime a token is renewed; if that
fails, the old one is used until it expires. A caller whose token is rejected calls `refused`, and the next `get`
fetches a new one. The guard of the HTTP client decides which token endpoints may be contacted.
"""

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import structlog
from yarl import URL

from fieldpost.clock import Clock, SystemClock
from fieldpost.core.secret import Secret
from fieldpost.outbound.client import HttpAnswer, HttpClient, NoAnswer
from fieldpost.outbound.guard import Blocked

FETCH_TIMEOUT_S = 30.0
LIFE_S_DEFAULT = 300.0
"""Lifetime of a token without `expires_in`."""
LIFE_S_MAX = 24 * 3600.0
EARLY_PART = 0.2
CREDENTIALS_MAX = 10_000

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Credential:
    """Client credentials and the token endpoint."""

    url: str
    client_id: str
    client_secret: Secret
    scope: str


class NoToken(Exception):
    """No token is available; the text states why and contains no secret."""


class OAuthTokens:
    """Fetches and caches tokens. Safe for concurrent callers."""

    def __init__(self, client: HttpClient, clock: Clock | None = None, timeout_s: float = FETCH_TIMEOUT_S) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._kept: OrderedDict[Credential, _Token] = OrderedDict()
        self._fetching: dict[Credential, asyncio.Task[_Token]] = {}

    async def get(self, credential: Credential) -> Secret:
        """Return a token that has not expired. Raises NoToken."""
        now = self._clock.monotonic()
        kept = self._kept.get(credential)
        if kept is not None and now < kept.renew_at:
            return kept.text
        try:
            return (await self._fetch_once(credential)).text
        except NoToken as error:
            if kept is None or now >= kept.ends_at:
                raise
            log.warning("token.renewal_failed", client_id=credential.client_id, error=str(error))
            return kept.text

    def refused(self, credential: Credential, token: Secret) -> None:
        """Drop a rejected token, so that the next call fetches a new one."""
        kept = self._kept.get(credential)
        if kept is not None and kept.text == token:
            del self._kept[credential]

    async def close(self) -> None:
        for task in self._fetching.values():
            task.cancel()
        await asyncio.gather(*self._fetching.values(), return_exceptions=True)

    async def _fetch_once(self, credential: Credential) -> "_Token":
        """Send one request for all concurrent callers; a cancelled caller does not cancel it for the others."""
        task = self._fetching.get(credential)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch(credential), name="token")
            self._fetching[credential] = task
            task.add_done_callback(lambda done: self._fetched(credential, done))
        return await asyncio.shield(task)

    def _fetched(self, credential: Credential, task: "asyncio.Task[_Token]") -> None:
        del self._fetching[credential]
        if task.cancelled() or task.exception() is not None:
            return
        self._kept[credential] = task.result()
        self._kept.move_to_end(credential)
        if len(self._kept) > CREDENTIALS_MAX:
            self._kept.popitem(last=False)

    async def _fetch(self, credential: Credential) -> "_Token":
        form = {
            "grant_type": "client_credentials",
            "client_id": credential.client_id,
            "client_secret": credential.client_secret.reveal(),
        }
        if credential.scope:
            form["scope"] = credential.scope
        asked_at = self._clock.monotonic()
        try:
            answer = await self._client.request(
                "POST",
                URL(credential.url),
                headers={"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
                body=urlencode(form).encode("ascii"),
                timeout_s=self._timeout_s,
            )
        except (Blocked, NoAnswer) as error:
            raise NoToken(f"no token from {credential.url}: {error}") from None
        return _token(credential.url, answer, asked_at)


@dataclass(frozen=True, slots=True)
class _Token:
    text: Secret
    renew_at: float
    ends_at: float


def _token(url: str, answer: HttpAnswer, asked_at: float) -> _Token:
    """Parse the response. Errors repeat only the error code: the rest may contain the secret."""
    content = _object(answer.body)
    if answer.status != 200:
        code = content.get("error")
        detail = f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
        raise NoToken(f"no token from {url}: the answer was {answer.status}{detail}")
    text, kind, life_s = content.get("access_token"), content.get("token_type", "bearer"), content.get("expires_in")
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        raise NoToken(f"no token from {url}: the answer has no valid access_token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise NoToken(f"no token from {url}: it is not of type bearer")
    if isinstance(life_s, str) and life_s.isascii() and life_s.isdigit():
        life_s = int(life_s)
    if not isinstance(life_s, int | float) or isinstance(life_s, bool) or not life_s > 0:
        life_s = LIFE_S_DEFAULT
    life_s = min(float(life_s), LIFE_S_MAX)
    return _Token(Secret(text), asked_at + life_s * (1 - EARLY_PART), asked_at + life_s)


def _object(body: bytes) -> Mapping[str, object]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


_ERROR_CODE = re.compile(r"[a-z_]{1,64}")
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
