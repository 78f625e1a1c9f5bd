"""Login by an identity provider, against a real one on loopback that lies as told."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fieldpost.central.access.oidc import CALLBACK_PATH, Oidc
from fieldpost.central.access.oidc_options import OidcOptions
from fieldpost.core.actor import USER_ROLES, Actor, Role
from fieldpost.core.errors import ConfigError
from fieldpost.core.login import WITH_NETWORK
from fieldpost.front.app import create_app
from fieldpost.front.options import FrontOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.run.settings import CentralSettings
from fieldpost.testing import ManualClock
from support.front import ADMIN, URL, Front, open_front
from support.oidc_provider import CLIENT_ID, CLIENT_SECRET, STRANGER, OidcProvider, oidc_provider

COOKIE = "fieldpost-session"


@dataclass
class House:
    front: Front
    provider: OidcProvider
    oidc: Oidc

    async def log_in(self, client: httpx2.AsyncClient, next_path: str = "/") -> httpx2.Response:
        """The way of a browser: to central, to the provider, and back."""
        away = await client.get("/login/oidc", params={"next": next_path})
        assert away.status_code == 303, away.text
        return await client.get(await self.approve(away.headers["location"]))

    async def approve(self, url: str) -> str:
        """Where the provider sends the browser, as a path at central."""
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as answer:
            assert answer.status == 302, await answer.text()
            back = urlsplit(answer.headers["location"])
        assert f"{back.scheme}://{back.netloc}" == URL
        return f"{back.path}?{back.query}"


@pytest.fixture
async def house(sqlite_url: str, tmp_path: Path) -> AsyncIterator[House]:
    clock = ManualClock()
    (tmp_path / "secret").write_text(CLIENT_SECRET + "\n")
    async with open_front(sqlite_url, clock) as front, oidc_provider() as provider:
        provider.redirect_uri = f"{URL}{CALLBACK_PATH}"
        provider.now = lambda: clock.now().timestamp()
        options = OidcOptions(
            issuer=provider.issuer,
            client_id=CLIENT_ID,
            client_secret_file=str(tmp_path / "secret"),
            admin_values="fieldpost-admins",
            operator_values="plant-operators shift-leads",
            viewer_values="everybody",
        )
        outbound = Outbound(clock=clock)
        oidc = Oidc(front.centre.store, clock, front.operate.logins, outbound.admin_http, options, URL)
        front.operate = replace(front.operate, oidc=oidc)
        front.app = create_app(front.operate, front.watch, front.centre.ingest, front.commands, clock=clock)
        yield House(front, provider, oidc)
        await outbound.close()


async def test_user_known_to_the_provider_logs_in_with_the_role_from_it(house: House) -> None:
    accounts = house.front.operate.accounts
    async with house.front.client() as client:
        assert "/login/oidc?next=" in (await client.get("/login")).text
        back = await house.log_in(client, "/?status=parked")
        assert (back.status_code, back.headers["location"]) == (303, "/?status=parked")
        assert await accounts.by_session(client.cookies[COOKIE]) == Actor("anna", Role.OPERATOR)
        assert "fieldpost-oidc" not in client.cookies, "what belonged to the login is gone"
        assert "Your account has no password" in (await client.get("/account")).text
        first = client.cookies[COOKIE]

        house.provider.person["groups"] = ["everybody", "fieldpost-admins"]
        house.provider.person["preferred_username"] = "somebody-else"
        await house.log_in(client)
        assert await accounts.by_session(client.cookies[COOKIE]) == Actor("anna", Role.ADMIN), "known by the subject"
        assert await accounts.by_session(first) is None, "another role ends the sessions from before"
    told = await house.front.centre.rows("select request_summary from audit where actor = 'anna'")
    assert sorted(str(row[0]) for row in told) == ["session.open", "session.open", "user.add", "user.change"]


@pytest.mark.parametrize("methods", [None, ["client_secret_basic"], ["client_secret_post", "client_secret_basic"]])
async def test_client_secret_is_sent_as_the_provider_requires(house: House, methods: list[str] | None) -> None:
    house.provider.methods = methods
    async with house.front.client() as client:
        assert (await house.log_in(client)).status_code == 303


async def test_token_signed_on_a_curve_is_accepted_and_new_keys_are_found(house: House) -> None:
    async with house.front.client() as client:
        await house.log_in(client)
        newer = ec.generate_private_key(ec.SECP256R1())
        house.provider.key, house.provider.key_id = newer, "key-2"
        house.provider.published.append(("key-2", newer))
        house.front.clock.advance(31)
        assert (await house.log_in(client)).status_code == 303
    assert house.provider.key_asks == 2


def _set(name: str, value: object) -> Any:
    return lambda header, claims: claims.__setitem__(name, value)


def _alg(value: str) -> Any:
    return lambda header, claims: header.__setitem__("alg", value)


LIES = {
    "another nonce": _set("nonce", "x"),
    "another audience": _set("aud", "another client"),
    "several audiences": _set("aud", [CLIENT_ID, "another"]),
    "another issuer": _set("iss", "https://evil.example"),
    "expired": lambda header, claims: claims.__setitem__("exp", claims["iat"] - 121),
    "from the future": lambda header, claims: claims.__setitem__("iat", claims["iat"] + 121),
    "no subject": _set("sub", ""),
    "an infinite end": _set("exp", float("inf")),
    "no number as its end": _set("exp", float("nan")),
    "an end in two days": lambda header, claims: claims.__setitem__("exp", claims["iat"] + 2 * 86_400),
    "no end": lambda header, claims: claims.pop("exp"),
    "not signed": _alg("none"),
    "signed by our own secret": _alg("HS256"),
    "unknown key": lambda header, claims: header.__setitem__("kid", "key-9"),
}


async def test_invalid_token_is_rejected(house: House) -> None:
    for what, lie in LIES.items():
        house.provider.lie = lie
        async with house.front.client() as client:
            back = await house.log_in(client)
            assert (back.status_code, COOKIE in client.cookies) == (403, False), what
    house.provider.lie = lambda header, claims: None
    house.provider.key = STRANGER
    async with house.front.client() as client:
        assert (await house.log_in(client)).status_code == 403
    assert len(await house.front.operate.users.all(ADMIN)) == len(USER_ROLES), "nobody was added"


@pytest.mark.parametrize("skew_s", [-110, 110])
async def test_small_clock_differences_are_tolerated(house: House, skew_s: int) -> None:
    clock = house.front.clock
    house.provider.now = lambda: clock.now().timestamp() + skew_s
    house.provider.lie = lambda header, claims: claims.__setitem__("exp", claims["iat"] + 1)
    async with house.front.client() as client:
        assert (await house.log_in(client)).status_code == 303


@pytest.mark.threat(10)
async def test_callback_of_another_browser_is_rejected(house: House) -> None:
    async with house.front.client() as mine, house.front.client() as stranger:
        theirs = await stranger.get("/login/oidc")
        planted = await house.approve(theirs.headers["location"])
        assert (await mine.get(planted)).status_code == 403, "no login was under way"
        await mine.get("/login/oidc")
        assert (await mine.get(planted)).status_code == 403, "it has another state"
        assert COOKIE not in mine.cookies
        own = await house.approve((await mine.get("/login/oidc")).headers["location"])
        assert (await mine.get(own)).status_code == 303
        assert (await mine.get(own)).status_code == 403, "a code is good once"
        assert (await stranger.get(f"{CALLBACK_PATH}?error=access_denied&state=x")).status_code == 403


async def test_user_without_role_or_usable_name_or_disabled_cannot_log_in(house: House) -> None:
    person, users = house.provider.person, house.front.operate.users
    async with house.front.client() as client:
        person["groups"] = ["nobody-in-particular"]
        assert "gives you no role" in (await house.log_in(client)).text
        person["groups"] = "everybody"
        person["preferred_username"] = "Ännä with spaces"
        assert "not a valid user name" in (await house.log_in(client)).text
        person["preferred_username"] = "admin"
        taken = await house.log_in(client)
        assert (taken.status_code, "does not belong to the identity provider" in taken.text) == (409, True)
        person["preferred_username"] = "anna"
        assert (await house.log_in(client)).status_code == 303
        await users.change(ADMIN, "anna", 1, is_disabled=True)
        assert "disabled" in (await house.log_in(client)).text


@pytest.mark.parametrize(
    "described",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://192.0.2.1/token"},
        {"token_endpoint": "http://169.254.169.254/token"},
        {"jwks_uri": None},
    ],
)
async def test_provider_with_an_invalid_description_is_not_used(house: House, described: dict[str, Any]) -> None:
    house.provider.described = described
    async with house.front.client() as client:
        answer = await client.get("/login/oidc")
    assert answer.status_code == 503
    assert "identity provider is not available" in answer.text


async def test_login_by_provider_needs_a_provider(house: House) -> None:
    front = house.front
    plain = create_app(replace(front.operate, oidc=None), front.watch, front.centre.ingest, front.commands)
    transport = httpx2.ASGITransport(app=plain)
    async with httpx2.AsyncClient(transport=transport, base_url=URL) as client:
        assert "/login/oidc" not in (await client.get("/login")).text
        assert (await client.get("/login/oidc")).status_code == 404


GIVEN = {"issuer": "https://id.example.org", "client_id": "x", "client_secret_file": "f", "admin_values": "a"}


@pytest.mark.parametrize(
    "missing", ["issuer", "client_id", "client_secret_file", "admin_values", "public_url", "https"]
)
def test_inconsistent_settings_are_rejected(missing: str) -> None:
    given = {name: value for name, value in GIVEN.items() if name != missing}
    if missing == "https":
        given["issuer"] = "http://id.example.org"
    with pytest.raises(ConfigError) as refused:
        CentralSettings(
            oidc=OidcOptions(**given), front=FrontOptions(public_url="" if missing == "public_url" else URL)
        )
    assert refused.value.code == "settings.oidc"


@pytest.mark.threat(35)
async def test_a_forged_callback_makes_no_call_to_the_provider(house: House) -> None:
    async with house.front.client() as client:
        await client.get("/login/oidc")
        kept = client.cookies["fieldpost-oidc"]
        for forged in ("%2F|state.nonce.verifier~00", "a.b.c.%2F", kept[:-1] + "g", "%2F|" + "x" * 4000, ""):
            client.cookies.clear()
            client.cookies.set("fieldpost-oidc", forged)
            refused = await client.get(f"{CALLBACK_PATH}?state=state&code=x")
            assert refused.status_code == 403
            assert "no login is in progress" in refused.text.lower()
    assert house.provider.exchanges == 0


@pytest.mark.threat(35)
async def test_invented_codes_are_limited_by_network_and_good_ones_cost_nothing(house: House) -> None:
    async with house.front.client() as client:
        for _ in range(WITH_NETWORK.free + 5):
            assert (await house.log_in(client)).status_code == 303
        before = house.provider.exchanges
        for number in range(WITH_NETWORK.free + 5):
            away = await client.get("/login/oidc")
            state = parse_qs(urlsplit(away.headers["location"]).query)["state"][0]
            back = await client.get(f"{CALLBACK_PATH}?state={state}&code=invented")
            assert back.status_code == (403 if number <= WITH_NETWORK.free else 503), number
        assert house.provider.exchanges - before == WITH_NETWORK.free + 1


@pytest.mark.threat(12)
async def test_a_login_ends_the_earlier_session_of_this_browser(house: House) -> None:
    accounts = house.front.operate.accounts
    async with house.front.client() as client:
        await house.log_in(client)
        first = client.cookies[COOKIE]
        await house.log_in(client)
        assert await accounts.by_session(first) is None
        assert await accounts.by_session(client.cookies[COOKIE]) is not None
