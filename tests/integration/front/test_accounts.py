"""Sessions and tokens: who is who, and the first account."""

import hmac
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from hashlib import sha256

import pytest
from sqlalchemy import Connection, text

from fieldpost.central.access.account_options import AccountOptions
from fieldpost.central.access.accounts import TOKEN_LIFE, Accounts
from fieldpost.central.access.logins import Logins
from fieldpost.central.store.accounts import identities
from fieldpost.central.store.engine.store import Store
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import NotFound
from fieldpost.link import credentials
from fieldpost.testing import ManualClock
from support.centre import open_centre
from support.front import Front


@pytest.fixture
async def store(store_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    async with open_centre(store_url, clock) as centre:
        yield centre.store


async def test_first_start_creates_an_admin_with_a_one_time_link_and_a_valid_token(
    store: Store, clock: ManualClock
) -> None:
    accounts, logins = Accounts(store, clock), Logins(store, clock)
    first = await accounts.first_start()
    assert first is not None
    assert first.link is not None
    assert first.api_token is not None
    assert await logins.whose_link(first.link) == "admin"
    session = await logins.use_link(first.link, "correct horse battery")
    assert session.actor == Actor("admin", Role.ADMIN)
    assert (await logins.log_in("admin", "correct horse battery")).actor == Actor("admin", Role.ADMIN)
    assert await accounts.by_api_token(first.api_token) == Actor("admin", Role.ADMIN)
    assert first.link not in repr(first)
    assert first.api_token not in repr(first)
    clock.advance(TOKEN_LIFE.total_seconds())
    assert await accounts.by_api_token(first.api_token) is None, "it expires like any other"


async def test_password_chosen_by_the_caller_needs_no_link(store: Store, clock: ManualClock) -> None:
    first = await Accounts(store, clock).first_start("chosen by the demo")
    assert first is not None
    assert first.link is None
    assert (await Logins(store, clock).log_in("admin", "chosen by the demo")).actor.name == "admin"


async def test_later_start_creates_nothing_while_the_link_is_valid(store: Store, clock: ManualClock) -> None:
    assert await Accounts(store, clock).first_start() is not None
    assert await Accounts(store, clock).first_start() is None


async def test_expired_first_link_is_replaced_at_the_next_start(store: Store, clock: ManualClock) -> None:
    accounts, logins = Accounts(store, clock), Logins(store, clock)
    lost = await accounts.first_start()
    clock.advance(AccountOptions().link_s)
    another = await accounts.first_start()
    assert lost is not None
    assert lost.link is not None
    assert another is not None
    assert another.link is not None
    assert another.api_token is None, "the token from before still works"
    with pytest.raises(NotFound):
        await logins.use_link(lost.link, "correct horse battery")
    await logins.use_link(another.link, "correct horse battery")
    clock.advance(10 * AccountOptions().link_s)
    assert await accounts.first_start() is None, "somebody has a password now"


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
async def test_token_of_one_kind_is_not_accepted_as_another(front: Front, kind: str) -> None:
    token = credentials.issue(kind, os.urandom(credentials.ENTROPY_BYTES))
    role = None if kind == "site" else "admin"
    now = front.clock.now()
    await front.centre.store.write(
        identities.add_token, identities.TokenRecord(token.prefix, kind, token.digest, "admin", role, now)
    )
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
    await store.write(
        identities.add_token, identities.TokenRecord(brief.prefix, "api", brief.digest, "admin", "admin", now, until)
    )
    front.clock.advance(3599)
    assert await accounts.by_api_token(brief.text) is not None
    front.clock.advance(1)
    assert await accounts.by_api_token(brief.text) is None

    prefix = credentials.prefix_of(front.tokens["viewer"], "api")
    assert prefix is not None
    await store.write(identities.revoke_token, "api", prefix, front.clock.now())
    assert await accounts.by_api_token(front.tokens["viewer"]) is None
    assert await accounts.by_api_token(front.tokens["operator"]) == Actor("operator", Role.OPERATOR)


@pytest.mark.threat(12)
async def test_session_ends_at_its_maximum_age_even_if_used(front: Front) -> None:
    session = await front.operate.logins.log_in("viewer", front.password("viewer"))
    hours = int(AccountOptions().session_s // 3600)
    for _ in range(hours - 1):
        front.clock.advance(3600)
        assert await front.operate.accounts.by_session(session.token) == Actor("viewer", Role.VIEWER)
    front.clock.advance(3599)
    assert await front.operate.accounts.by_session(session.token) is not None
    front.clock.advance(1)
    assert await front.operate.accounts.by_session(session.token) is None


@pytest.mark.threat(12)
async def test_idle_session_ends_and_automatic_requests_do_not_count(front: Front) -> None:
    accounts = front.operate.accounts
    session = await front.operate.logins.log_in("viewer", front.password("viewer"))
    idle_s = AccountOptions().session_idle_s
    front.clock.advance(idle_s / 2)
    assert await accounts.by_session(session.token) is not None
    front.clock.advance(idle_s - 1)
    assert await accounts.by_session(session.token, is_active=False) is not None
    front.clock.advance(1)
    assert await accounts.by_session(session.token, is_active=False) is None
    assert await accounts.by_session(session.token) is None, "and it does not come back"
    assert await front.operate.logins.sessions(Actor("viewer", Role.VIEWER)) == []


@pytest.mark.threat(12)
async def test_logging_out_ends_the_session_at_central(front: Front) -> None:
    accounts, logins = front.operate.accounts, front.operate.logins
    mine = await logins.log_in("viewer", front.password("viewer"))
    another = await logins.log_in("viewer", front.password("viewer"))
    assert mine.token != another.token, "each login has a session of its own"
    await logins.log_out(mine.token)
    assert await accounts.by_session(mine.token) is None
    assert await accounts.by_session(another.token) is not None


async def test_session_has_the_present_role_of_its_owner(front: Front) -> None:
    session = await front.operate.logins.log_in("operator", front.password("operator"))
    await front.centre.execute("update users set role = 'viewer' where name = 'operator'")
    assert await front.operate.accounts.by_session(session.token) == Actor("operator", Role.VIEWER)


async def test_token_has_at_most_the_present_role_of_its_owner(front: Front) -> None:
    accounts, token = front.operate.accounts, front.tokens["admin"]
    await front.centre.execute("update users set role = 'operator' where name = 'admin'")
    assert await accounts.by_api_token(token) == Actor("admin", Role.OPERATOR)
    await front.centre.execute("update users set disabled_at = created_at where name = 'admin'")
    assert await accounts.by_api_token(token) is None


async def test_last_use_of_a_token_is_recorded(front: Front) -> None:
    front.clock.advance(1000)
    await front.operate.accounts.by_api_token(front.tokens["viewer"])
    [used] = await front.operate.tokens.all(Actor("viewer", Role.VIEWER))
    assert used.last_used_at == front.clock.now()


def stored_tokens(conn: Connection) -> list[tuple[str, bytes]]:
    return [(row.prefix, row.digest) for row in conn.execute(text("select prefix, digest from tokens"))]
