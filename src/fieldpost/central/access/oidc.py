"""Login through an identity provider: OpenID Connect, authorization code with PKCE.

Central sends the browser to the provider and keeps three random values in a cookie of that browser: `state` returns
with the browser, `nonce` inside the ID token, and `verifier` proves to the provider that the code and the request come
from the same client. The cookie is signed and failed callbacks are counted by network, so that forged ones do not make
central call the provider. Central exchanges the code over its own guarded connection, never through the browser.

A user is identified by issuer and subject, which the provider never reassigns; the name is only a label. The name of an
existing local user is not taken over. The provider decides the role at each login.
"""

import asyncio
import hmac
import json
import secrets
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import quote_plus, urlencode

import structlog
from sqlalchemy import Connection
from yarl import URL

from fieldpost.central.access import id_token
from fieldpost.central.access.audit_trail import commit, record
from fieldpost.central.access.id_token import BadToken, Claims, PublicKey, UnknownKey
from fieldpost.central.access.logins import Logins, NewSession, Origin
from fieldpost.central.access.oidc_options import OidcOptions
from fieldpost.central.access.signatures import CookieSigner
from fieldpost.central.store.accounts import identities
from fieldpost.central.store.accounts.identities import UserRecord
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, Denied, InvalidInput, Unavailable
from fieldpost.core.login import is_user_name
from fieldpost.core.secret import Secret
from fieldpost.outbound.client import HttpClient, NoAnswer
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.url import check_url

CALLBACK_PATH = "/login/oidc/callback"
TIMEOUT_S = 10.0
KEPT_S = 3600.0
"""How long the provider's description and keys are cached."""
KEYS_AGAIN_S = 30.0
"""How soon the keys are fetched again when a token names an unknown key."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Begun:
    """A login in progress: the URL for the browser, and the values it keeps in the meantime."""

    url: str
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)

    def to_cookie(self, signer: CookieSigner) -> str:
        return signer.sign("oidc", ".".join((self.state, self.nonce, self.verifier)))

    @classmethod
    def from_cookie(cls, signer: CookieSigner, cookie: str) -> "Begun":
        """The login in progress; Denied unless central made this cookie."""
        value = signer.verify("oidc", cookie)
        if value is None:
            raise Denied(
                "oidc.not_begun", "no login is in progress in this browser", hint="start again at the login page"
            )
        return cls("", *value.split("."))


@dataclass(frozen=True, slots=True)
class _Provider:
    authorize: str
    token: URL
    keys: URL
    is_basic: bool


class Oidc:
    """Login through one provider. `public_url` is the address of the console for browsers."""

    def __init__(
        self, store: Store, clock: Clock, logins: Logins, client: HttpClient, options: OidcOptions, public_url: str
    ) -> None:
        self._store = store
        self._clock = clock
        self._logins = logins
        self._client = client
        self._options = options
        self._secret: Secret = options.secret()
        self._redirect_uri = public_url.rstrip("/") + CALLBACK_PATH
        self._provider: tuple[float, _Provider] | None = None
        self._keys: tuple[float, dict[str, PublicKey]] | None = None
        self._lock = asyncio.Lock()

    @property
    def label(self) -> str:
        return self._options.label

    async def begin(self) -> Begun:
        """Start a login. Raises Unavailable when the provider does not answer."""
        provider = await self._discover()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._options.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": self._options.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in provider.authorize else "?"
        return Begun(f"{provider.authorize}{joint}{urlencode(query)}", state, nonce, verifier)

    async def finish(self, begun: Begun, state: str, code: str, origin: Origin) -> NewSession:
        """A session for the user that the provider has authenticated. Raises Denied, Conflict, Unavailable."""
        if not hmac.compare_digest(state.encode(), begun.state.encode()):
            raise _refused("the answer belongs to another login")
        await self._logins.charge_network("oidc", origin)
        provider = await self._discover()
        token = await self._exchange(provider, code, begun.verifier)
        claims = await self._verify(provider, token, begun.nonce)
        role = self._options.role_of(id_token.values_of(claims, self._options.role_claim))
        if role is None:
            log.warning("oidc.no_role", address=origin.address)
            raise Denied("oidc.no_role", "the identity provider gives you no role in Fieldpost")
        user = await self._user(claims, role)
        await self._logins.give_back_network("oidc", origin)
        return await self._logins.open(user, origin, "identity provider")

    async def _user(self, claims: Claims, role: Role) -> UserRecord:
        subject = f"{self._options.issuer} {claims['sub']}"
        found = await self._store.read(identities.get_by_subject, subject)
        now = self._clock.now()
        if found is None:
            name = str(claims.get(self._options.name_claim) or "").strip().lower()
            if not is_user_name(name):
                raise Denied(
                    "oidc.name",
                    f"the {self._options.name_claim} from the identity provider is not a valid user name",
                )
            entry = record(Actor(name, role), "user.add", name, now, {"role": role.value, "by": "identity provider"})
            await commit(self._store, f"user {name!r}", _add, name, role, subject, entry)
        elif found.disabled_at is not None:
            raise Denied("oidc.disabled", "this account is disabled")
        elif found.role != role.value:
            extra = {"role": role.value, "by": "identity provider"}
            entry = record(Actor(found.name, role), "user.change", found.name, now, extra)
            await commit(self._store, f"user {found.name!r}", _change, found, role, entry)
        user = await self._store.read(identities.get_by_subject, subject)
        if user is None:
            raise _refused("the account was removed in the meantime")
        return user

    async def _verify(self, provider: _Provider, token: str, nonce: str) -> Claims:
        for is_again in (False, True):
            keys = await self._fetch_keys(provider, is_again)
            try:
                return id_token.verify(
                    token,
                    keys,
                    issuer=self._options.issuer,
                    client_id=self._options.client_id,
                    nonce=nonce,
                    now=self._clock.now(),
                )
            except UnknownKey as error:
                if is_again:
                    raise _refused(str(error)) from None
            except BadToken as error:
                raise _refused(str(error)) from None
        raise AssertionError("the second round returns or raises")

    async def _exchange(self, provider: _Provider, code: str, verifier: str) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        client_id, secret = self._options.client_id, self._secret.reveal()
        if provider.is_basic:
            pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": client_id, "client_secret": secret}
        status, answer = await self._request("POST", provider.token, headers, urlencode(form).encode("ascii"))
        token = answer.get("id_token")
        if status != 200 or not isinstance(token, str):
            raise _refused("the provider rejected the code from the browser")
        return token

    async def _discover(self) -> _Provider:
        async with self._lock:
            now = self._clock.monotonic()
            if self._provider is not None and now - self._provider[0] < KEPT_S:
                return self._provider[1]
            issuer = self._options.issuer
            where = check_url(issuer.rstrip("/") + "/.well-known/openid-configuration", "admin", "oidc.issuer")
            status, answer = await self._request("GET", where, {"Accept": "application/json"})
            if status != 200 or answer.get("issuer") != issuer:
                raise _unavailable("its configuration document does not describe this issuer")
            try:
                found = _Provider(
                    str(check_url(answer.get("authorization_endpoint"), "admin", "authorization_endpoint")),
                    check_url(answer.get("token_endpoint"), "admin", "token_endpoint"),
                    check_url(answer.get("jwks_uri"), "admin", "jwks_uri"),
                    "client_secret_post" not in _texts(answer.get("token_endpoint_auth_methods_supported")),
                )
            except InvalidInput as error:
                raise _unavailable(f"its configuration is invalid: {error.message}") from None
            self._provider = (now, found)
            return found

    async def _fetch_keys(self, provider: _Provider, is_again: bool) -> dict[str, PublicKey]:
        async with self._lock:
            now = self._clock.monotonic()
            if self._keys is not None and now - self._keys[0] < (KEYS_AGAIN_S if is_again else KEPT_S):
                return self._keys[1]
            status, answer = await self._request("GET", provider.keys, {"Accept": "application/json"})
            if status != 200:
                raise _unavailable("its keys cannot be fetched")
            self._keys = (now, id_token.read_keys(answer))
            return self._keys[1]

    async def _request(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, object]]:
        try:
            response = await self._client.request(method, url, headers=headers, body=body, timeout_s=TIMEOUT_S)
        except (Blocked, NoAnswer) as error:
            raise _unavailable(str(error)) from None
        try:
            content = json.loads(response.body)
        except (ValueError, RecursionError):
            content = None
        return response.status, content if isinstance(content, dict) else {}


def _add(conn: Connection, name: str, role: Role, subject: str, entry: AuditEntry) -> None:
    if identities.get_user(conn, name) is not None:
        raise Conflict(
            "oidc.name_taken",
            f"user {name!r} already exists and does not belong to the identity provider",
            hint="ask an administrator to remove that user",
        )
    identities.add_user(conn, UserRecord(name, None, role.value, entry.occurred_at, entry.actor, subject=subject))
    audit.add(conn, [entry])


def _change(conn: Connection, seen: UserRecord, role: Role, entry: AuditEntry) -> None:
    values = {"role": role.value, "subscription_owner": None}
    if not identities.change_user(conn, seen.name, seen.version, values):
        raise Conflict("user.changed", f"user {seen.name!r} was changed at the same time", hint="log in again")
    identities.revoke_all(conn, "session", seen.name, entry.occurred_at)
    audit.add(conn, [entry])


def _refused(reason: str) -> Denied:
    log.warning("oidc.refused", reason=reason)
    return Denied("oidc.refused", f"the login through the identity provider failed: {reason}", hint="try again")


def _unavailable(reason: str) -> Unavailable:
    log.warning("oidc.unavailable", reason=reason)
    return Unavailable("oidc.unavailable", f"the identity provider is not available: {reason}")


def _texts(value: object) -> list[object]:
    # Without this field, the default of the standard is basic.
    return value if isinstance(value, list) else []
