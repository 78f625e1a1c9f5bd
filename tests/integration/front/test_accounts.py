"""Passwords, sessions and tokens."""

import hmac
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from hashlib import sha256

import pytest
from sqlalchemy import Connection, text

from fieldpost.central.operate.accounts import PASSWORD_BYTES_MAX, SESSION, Accounts
from fieldpost.central.store import identities
from fieldpost.central.store.engine import Store
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import Denied
from fieldpost.link import credentials
from fieldpost.testing import ManualClock
from support.centre import open_centre
from support.front import Front


@pytest.fixture
async def store(store_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    async with open_centre(store_url, clock) as centre:
        yield centre.store


async def test_the_first_start_makes_an_admin_who_can_log_in_and_a_token_that_works(
    store: Store, clock: ManualClock
) -> None:
    accounts = Accounts(store, clock)
    first = await accounts.first_start()
    assert first is not None
    assert (await accounts.log_in(first.name, first.password)).actor == Actor("admin", Role.ADMIN)
    assert await accounts.by_api_token(first.api_token) == Actor("admin", Role.ADMIN)
    assert first.password not in repr(first)
    assert first.api_token not in repr(first)


async def test_a_later_start_makes_nothing(store: Store, clock: ManualClock) -> None:
    assert await Accounts(store, clock).first_start() is not None
    assert await Accounts(store, clock).first_start() is None


async def test_passwords_of_two_first_starts_differ(store: Store, clock: ManualClock) -> None:
    first = await Accounts(store, clock).first_start()
    await store.write(forget_operators)
    second = await Accounts(store, clock).first_start()
    assert first is not None
    assert second is not None
    assert first.password != second.password


@pytest.mark.threat(14)
async def test_tokens_are_stored_as_digests_and_compared_in_constant_time(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = front.tokens["admin"]
    stored = await front.centre.store.read(stored_tokens)
    assert sha256(token.encode()).digest() in [bytes(digest) for _, digest in stored]
    assert token not in str(stored)
    assert len(token.split("_")[3]) * 5 >= 256, "the secret part alone has 256 bits"

    compared = []
    compare = hmac.compare_digest

    def watching(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return compare(a, b)

    monkeypatch.setattr(hmac, "compare_digest", watching)
    assert await front.operate.accounts.by_api_token(token[:-1] + "a") is None or token.endswith("a")
    assert [bytes(b) for _, b in compared] == [sha256(token.encode()).digest()], "found by its prefix, then compared"


@pytest.mark.threat(14)
@pytest.mark.parametrize("kind", ["api", "site", "session"])
async def test_a_token_of_one_kind_is_none_of_another(front: Front, kind: str) -> None:
    token = credentials.issue(kind, os.urandom(credentials.ENTROPY_BYTES))
    role = None if kind == "site" else "admin"
    now = front.clock.now()
    await front.centre.store.write(identities.add_token, kind, token.prefix, token.digest, "admin", role, now)
    accounts = front.operate.accounts
    verdicts = {
        "api": await accounts.by_api_token(token.text),
        "site": await accounts.by_site_token(token.text),
        "session": await accounts.by_session(token.text),
    }
    assert [name for name, found in verdicts.items() if found is not None] == [kind]


async def test_a_revoked_token_and_an_expired_one_are_refused_and_the_others_stay(front: Front) -> None:
    store, now = front.centre.store, front.clock.now()
    accounts = front.operate.accounts
    brief = credentials.issue("api", os.urandom(credentials.ENTROPY_BYTES))
    until = now + timedelta(hours=1)
    await store.write(identities.add_token, "api", brief.prefix, brief.digest, "admin", "admin", now, until)
    front.clock.advance(3599)
    assert await accounts.by_api_token(brief.text) is not None
    front.clock.advance(1)
    assert await accounts.by_api_token(brief.text) is None

    prefix = credentials.prefix_of(front.tokens["viewer"], "api")
    assert prefix is not None
    await store.write(identities.revoke_token, "api", prefix, front.clock.now())
    assert await accounts.by_api_token(front.tokens["viewer"]) is None
    assert await accounts.by_api_token(front.tokens["operator"]) == Actor("operator", Role.OPERATOR)


async def test_a_session_ends_when_its_time_is_over(front: Front) -> None:
    session = await front.operate.accounts.log_in("viewer", front.password("viewer"))
    front.clock.advance(SESSION.total_seconds() - 1)
    assert await front.operate.accounts.by_session(session.token) == Actor("viewer", Role.VIEWER)
    front.clock.advance(1)
    assert await front.operate.accounts.by_session(session.token) is None


async def test_logging_out_ends_the_session_at_central(front: Front) -> None:
    accounts = front.operate.accounts
    mine = await accounts.log_in("viewer", front.password("viewer"))
    another = await accounts.log_in("viewer", front.password("viewer"))
    assert mine.token != another.token, "each login has a session of its own"
    await accounts.log_out(mine.token)
    assert await accounts.by_session(mine.token) is None
    assert await accounts.by_session(another.token) is not None


async def test_a_session_follows_the_role_that_its_owner_has_now(front: Front) -> None:
    session = await front.operate.accounts.log_in("operator", front.password("operator"))
    await front.centre.execute("update operators set role = 'viewer' where name = 'operator'")
    assert await front.operate.accounts.by_session(session.token) == Actor("operator", Role.VIEWER)


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("viewer", "wrong"),
        ("viewer", ""),
        ("nobody", "wrong"),
        ("", ""),
        ("vi\x00ewer", "x"),
        ("ᴠiewer", "viewer's own password"),
        ("VIEWER", "viewer's own password"),
        ("viewer", "x" * 1_000_000),
        ("x" * 1_000_000, "x"),
        ("\udcff", "\udcff"),
    ],
)
async def test_a_wrong_login_is_refused_with_one_text(front: Front, name: str, password: str) -> None:
    with pytest.raises(Denied) as refused:
        await front.operate.accounts.log_in(name, password)
    assert (refused.value.code, refused.value.message) == ("login.refused", "the name or the password is wrong")


async def test_an_unknown_name_costs_a_hash_as_a_known_one_does_and_a_password_too_long_costs_none(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = Accounts(store, clock)
    first = await accounts.first_start()
    assert first is not None
    hashed: list[str] = []
    matches = accounts._matches

    def counting(stored: str, password: str) -> bool:
        hashed.append(stored)
        return matches(stored, password)

    monkeypatch.setattr(accounts, "_matches", counting)
    for name, password in (("admin", "x"), ("nobody", "x"), ("admin", "x" * (PASSWORD_BYTES_MAX + 1))):
        with pytest.raises(Denied):
            await accounts.log_in(name, password)
    assert len(hashed) == 2
    cost = [stored.split("$")[:4] for stored in hashed]
    assert cost[0] == cost[1], "the same function with the same cost"


def stored_tokens(conn: Connection) -> list[tuple[str, bytes]]:
    return [(row.prefix, row.digest) for row in conn.execute(text("select prefix, digest from tokens"))]


def forget_operators(conn: Connection) -> None:
    conn.exec_driver_sql("delete from operators")
