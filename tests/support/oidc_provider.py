"""A small OpenID Connect provider on loopback: real discovery, keys, codes, PKCE and ID tokens; it lies as told."""

import json
import secrets
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import unquote_plus, urlencode

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

CLIENT_ID = "fieldpost"
CLIENT_SECRET = "a secret & of + central"

RSA_KEY = rsa.generate_private_key(65537, 2048)
STRANGER = rsa.generate_private_key(65537, 2048)


class OidcProvider:
    """Whoever comes is `person`, and is let in at once."""

    def __init__(self) -> None:
        self.issuer = ""
        self.redirect_uri = ""
        self.person: dict[str, Any] = {"sub": "u-1", "preferred_username": "Anna", "groups": ["plant-operators"]}
        self.key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey = RSA_KEY
        self.key_id = "key-1"
        self.published: list[tuple[str, Any]] = [("key-1", RSA_KEY)]
        self.methods: list[str] | None = None
        self.now: Callable[[], float] = time.time
        self.lie: Callable[[dict[str, Any], dict[str, Any]], None] = lambda header, claims: None
        self.described: dict[str, Any] = {}
        self.key_asks = 0
        self.exchanges = 0
        self._codes: dict[str, dict[str, str]] = {}

    async def configuration(self, request: web.Request) -> web.Response:
        said: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }
        if self.methods is not None:
            said["token_endpoint_auth_methods_supported"] = self.methods
        return web.json_response(said | self.described)

    async def keys(self, request: web.Request) -> web.Response:
        self.key_asks += 1
        return web.json_response({"keys": [_published(name, key) for name, key in self.published]})

    async def authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        if query["client_id"] != CLIENT_ID or query["redirect_uri"] != self.redirect_uri:
            raise web.HTTPBadRequest
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe()
        self._codes[code] = query
        raise web.HTTPFound(f"{self.redirect_uri}?{urlencode({'code': code, 'state': query['state']})}")

    async def token(self, request: web.Request) -> web.Response:
        self.exchanges += 1
        form = {name: str(value) for name, value in (await request.post()).items()}
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = _base64(sha256(form.get("code_verifier", "").encode()).digest())
        is_good = (
            asked is not None
            and asked["code_challenge"] == challenge
            and form.get("redirect_uri") == self.redirect_uri
            and form.get("grant_type") == "authorization_code"
        )
        if not self._knows(request, form):
            return web.json_response({"error": "invalid_client"}, status=401)
        if not is_good or asked is None:
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(self.now())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "nonce": asked["nonce"], "iat": now, "exp": now + 300}
        return web.json_response({"access_token": "x", "token_type": "Bearer", "id_token": self._sign(claims)})

    def _knows(self, request: web.Request, form: dict[str, str]) -> bool:
        if self.methods and "client_secret_post" in self.methods:
            return (form.get("client_id"), form.get("client_secret")) == (CLIENT_ID, CLIENT_SECRET)
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        name, _, secret = b64decode(text).decode().partition(":")
        return scheme == "Basic" and (unquote_plus(name), unquote_plus(secret)) == (CLIENT_ID, CLIENT_SECRET)

    def _sign(self, claims: dict[str, Any]) -> str:
        header = {"alg": "RS256" if isinstance(self.key, rsa.RSAPrivateKey) else "ES256", "kid": self.key_id}
        claims |= self.person
        self.lie(header, claims)
        data = f"{_json(header)}.{_json(claims)}"
        if isinstance(self.key, rsa.RSAPrivateKey):
            signature = self.key.sign(data.encode(), padding.PKCS1v15(), SHA256())
        else:
            r, s = decode_dss_signature(self.key.sign(data.encode(), ec.ECDSA(SHA256())))
            signature = r.to_bytes(32) + s.to_bytes(32)
        return f"{data}.{'' if header['alg'] == 'none' else _base64(signature)}"


@asynccontextmanager
async def oidc_provider() -> AsyncIterator[OidcProvider]:
    provider = OidcProvider()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.configuration)
    app.router.add_get("/authorize", provider.authorize)
    app.router.add_post("/token", provider.token)
    app.router.add_get("/keys", provider.keys)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()


def _published(key_id: str, key: Any) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    if isinstance(key, rsa.RSAPrivateKey):
        return {"kty": "RSA", "use": "sig", "kid": key_id, "n": _number(numbers.n), "e": _number(numbers.e)}
    return {"kty": "EC", "crv": "P-256", "kid": key_id, "x": _number(numbers.x), "y": _number(numbers.y)}


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8))


def _json(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
