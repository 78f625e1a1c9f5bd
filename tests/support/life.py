"""The lives of a few notifications on a real store: every act is done to the store and to the model, then compared."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fieldpost.central.operate.notifications import NotAsSeen
from fieldpost.central.store.notifications import breakers, claim_orders, claims, finishing
from fieldpost.central.store.notifications import due as due_rows
from fieldpost.central.store.notifications.attempts import Finished
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.actor import Actor, Role
from fieldpost.core.delivery.breaker import Breaker
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.delivery.lifecycle import Hold, Policy, decide
from fieldpost.core.delivery.outcome import Held, Outcome
from fieldpost.core.delivery.retry import Fixed
from fieldpost.core.delivery.slots import Share
from fieldpost.core.notification import list_key
from fieldpost.link.messages import Item, Submit
from support.centre import order
from support.life_model import (
    ATTEMPTS_MAX,
    BREAKER,
    DELAY,
    EDGES,
    HOLD,
    HOLD_MAX,
    LEASE_S,
    LIVE,
    PARKS_UNCERTAIN,
    Row,
    contradictions,
    differences,
)
from support.life_world import START, World

SITE = "plant-7"
OPERATOR = Actor("ada", Role.OPERATOR)
MANY = 100
"""More than there are."""


@dataclass(frozen=True)
class Flight:
    """A claim in a node's hands."""

    name: str
    claimed: Claimed
    since: float
    due: list[str]

    @property
    def key(self) -> tuple[str, int]:
        return self.claimed.notification.notification_id, self.claimed.token


class Life:
    def __init__(self, world: World) -> None:
        self.world = world
        self.rows: dict[str, Row] = {}
        self.items: dict[str, Item] = {}
        self.flights: dict[str, list[Flight]] = {"a": [], "b": []}
        self.batches: list[tuple[str, list[Finished], list[str]]] = []
        self.seen: dict[str, Row] = {}
        world.begin_anew()

    @property
    def now(self) -> datetime:
        return self.world.clock.now()

    # What arrives

    def submit(self, list_name: str) -> str:
        name = f"n{len(self.rows) + 1}"
        self.items[name] = Item(self.world.new_id(), list_name, "Pump 3 stopped", f"No flow: {name}")
        assert self._verdict(self.items[name]) == "accepted"
        self.rows[name] = Row.submitted(list_name, self.now)
        self.check()
        return name

    def send_again(self, name: str, other: str | None) -> None:
        """The same once more, or another one under its id."""
        item = self.items[name]
        given = {"list_name": item.list_name, "subject": item.subject, "body": item.body, "site": SITE}
        if other is not None:
            given[other] = "another"
            self.rows[name].story["notify_send failed"] += 1
        site = given.pop("site")
        assert self._verdict(Item(item.notification_id, **given), site) == ("rejected" if other else "duplicate")
        self.check()

    def _verdict(self, item: Item, site: str = SITE) -> str:
        ack = self.world.run(self.world.ingest.submit(site, Submit(1, (item,))))
        return ack.results[0].verdict

    # Claims

    def claim(self, node: str, lane: Lane, limit: int, per_key: int) -> None:
        free, busy = self._free_in(lane, node), self._busy(node)
        self._promote()
        taken = self.world.write(
            claims.claim_due,
            node,
            lane,
            limit=limit,
            per_key=per_key,
            busy=busy,
            after="",
            mine=self._ids_of(node),
            **self._lease(),
        )
        names = self._names_of(taken)
        assert set(names) <= set(free), f"took {names}, only {free} were free"
        shares = 0
        for key in {self._key_of(name) for name in free}:
            due = sorted(self._due_at(name) for name in free if self._key_of(name) == key)
            of_key = sorted(self._due_at(name) for name in names if self._key_of(name) == key)
            share = max(0, min(per_key - busy[key], len(due)))
            assert len(of_key) <= share, f"took {names}, more than the share of {key}"
            assert of_key == due[: len(of_key)], f"took {names}, though others of {key} have been due for longer"
            shares += share
        assert len(names) == min(limit, shares), f"took {names} of {free}"
        self._take(node, taken)

    def claim_all(self, node: str) -> None:
        """Whatever is due in both lanes, as a sweep does; a suspect only with empty hands."""
        free = {lane: self._free_in(lane, node) for lane in Lane}
        self._promote()
        shares = [Share(lane=lane, limit=MANY, per_key=MANY, busy=self._busy(node)) for lane in Lane]
        taken = self.world.write(
            claim_orders.claim_order,
            node,
            order(shares, MANY),
            mine=self._ids_of(node),
            **self._lease(),
        )
        assert {lane: sorted(self._names_of(claimed)) for lane, claimed in taken.items()} == free
        self._take(node, [one for claimed in taken.values() for one in claimed])
        if self._suspects() and not self.flights[node]:
            self.claim_lone(node)

    def claim_lone(self, node: str) -> None:
        """Which a node does with empty hands only: what it had it has lost."""
        self.flights[node] = []
        suspects = self._suspects()
        taken = self.world.write(claims.claim_lone, node, **self._lease())
        self._check_the_first_of(suspects, taken)
        self._take(node, taken, is_lone=True)

    def claim_probe(self, node: str) -> None:
        held = [
            name
            for name, row in self.rows.items()
            if row.held_by == BREAKER and not row.is_claimed(self.now) and row.orphans < 2 and not self._has(node, name)
        ]
        taken = self.world.write(claims.claim_probes, node, {BREAKER: None}, mine=self._ids_of(node), **self._lease())
        self._check_the_first_of(held, taken)
        self._take(node, taken)

    def _check_the_first_of(self, candidates: list[str], taken: list[Claimed]) -> None:
        names = self._names_of(taken)
        assert len(names) == min(1, len(candidates)), f"took {names} of {candidates}"
        assert set(names) <= set(candidates), f"took {names}, only {candidates} could be"
        first = min(map(self._due_at, candidates), default=None)
        assert [self._due_at(name) for name in names] == [first] * len(names), "another has been due for longer"

    def _take(self, node: str, taken: list[Claimed], *, is_lone: bool = False) -> None:
        for name, one in zip(self._names_of(taken), taken, strict=True):
            row = self.rows[name]
            row.take(node, self.now, is_lone=is_lone)
            assert (one.token, one.claimed_at) == (row.token, self.now)
            assert (one.is_lone, one.has_crashed) == (is_lone, False)
            assert {t.address: t.status.value for t in one.notification.targets} == row.targets
            self.flights[node].append(Flight(name, one, self.world.clock.monotonic(), row.due))
        if taken:
            self.check()

    def renew(self, node: str) -> None:
        kept = self.world.write(claims.renew, node, [f.key for f in self.flights[node]], **self._lease())
        assert kept == {flight.key[0] for flight in self._held_by(node)}
        for flight in self._held_by(node):
            self.rows[flight.name].lease_until = self.now + timedelta(seconds=LEASE_S)
        self.check()

    def give_back(self, node: str) -> None:
        keys = [flight.key for flight in self.flights[node]]
        given = self.world.write(claims.release, node, keys, "the node stopped", now=self.now)
        assert given == {flight.key[0] for flight in self._held_by(node)}
        for flight in self._held_by(node):
            self.rows[flight.name].give_back()
        self.flights[node] = []
        self.check()

    def crash(self, node: str) -> None:
        self.flights[node] = []

    def void_all(self) -> None:
        """A new process of an embedded central knows that no other is left."""
        self.world.write(claims.void_all, now=self.now)
        self.flights = {"a": [], "b": []}
        for row in self.rows.values():
            if row.lease_until is not None:
                row.lease_until = self.now if row.orphan_count >= 2 else datetime(1970, 1, 1, tzinfo=UTC)
        self.check()

    # Ends of attempts

    def finish(self, node: str, ending: list[tuple[Flight, Outcome]]) -> None:
        """These attempts come to their ends, in one batch."""
        batch = [self._finished(flight, outcome) for flight, outcome in ending]
        self.batches.append((node, batch, [self.world.new_id() for _ in range(2 * len(batch))]))
        late = self.world.write(finishing.apply, *self.batches[-1])
        expected = set()
        for flight, outcome in ending:
            self.flights[node].remove(flight)
            named = {} if isinstance(outcome, Held) else {t.address: t.status.value for t in outcome.targets}
            row = self.rows[flight.name]
            if not row.finish(node, flight.claimed.token, outcome.word, named, self._time_of(flight)):
                expected.add(flight.key[0])
        assert late == expected, "late are those whose claim was lost"
        self.check()

    def finish_again(self, batches_ago: int) -> None:
        """As after a commit whose answer was lost, or came very late."""
        for batch in self.batches[-1 - batches_ago :][:1]:
            assert self.world.write(finishing.apply, *batch) == set(), "what is written already is no news"
            self.check()

    def _finished(self, flight: Flight, outcome: Outcome) -> Finished:
        n, at = flight.claimed.notification, self._time_of(flight)
        policy = Policy(Fixed(DELAY, ATTEMPTS_MAX), n.list_name in PARKS_UNCERTAIN, HOLD_MAX)
        transition = decide(n, outcome, policy, Hold(BREAKER, at + HOLD), at, 0.0)
        return Finished(*flight.key, transition, outcome.word, outcome.error, None, None, 5, at)

    def _time_of(self, flight: Flight) -> datetime:
        """A node's idea of the database's time: as it was at the claim, and what has passed since."""
        return flight.claimed.claimed_at + timedelta(seconds=self.world.clock.monotonic() - flight.since)

    def _promote(self) -> None:
        self.world.write(due_rows.promote, MANY, now=self.now)

    # Holds

    def hold(self, list_names: set[str]) -> None:
        until = self.now + DELAY
        due = [row for row in self.rows.values() if row.list_name in list_names and row.may_be_held(self.now)]
        holds = [(list_key(name), BREAKER, "down", until) for name in sorted(list_names)]
        self._promote()
        assert self.world.write(breakers.hold_rows, holds, MANY, now=self.now) == len(due)
        for row in due:
            row.hold(until)
        self.check()

    def release_held(self, is_healthy: bool) -> None:
        free = [r for r in self.rows.values() if r.held_by == BREAKER and (is_healthy or r.is_due(self.now))]
        assert self.world.write(
            breakers.release_held, [Breaker(BREAKER, failures=0 if is_healthy else 1)], MANY, now=self.now
        ) == len(free)
        for row in free:
            row.come_free(self.now)
        self.check()

    # Operators

    def operate(self, act: str, name: str, version: int) -> None:
        """Retry or discard what was seen at this version."""
        row = self.rows[name]
        done = getattr(self.world.operate, act)(OPERATOR, self.items[name].notification_id, version)
        if row.status == "parked" and row.version == version:
            self.world.run(done)
            row.act(act, self.now)
        else:
            with pytest.raises(NotAsSeen) as refused:
                self.world.run(done)
            code = "notification.changed" if row.status == "parked" else "notification.not_parked"
            assert refused.value.code == code
            assert (refused.value.current.status, refused.value.current.version) == (row.status, row.version)
        self.check()

    # What must hold after every act

    def check(self) -> None:
        found = self.world.look({item.notification_id: name for name, item in self.items.items()})
        assert set(found) == set(self.rows)
        wrong = [
            f"{name}: {difference}"
            for name, row in self.rows.items()
            for difference in [*differences(row, found[name]), *contradictions(found[name])]
        ]
        wrong += [
            f"{name}: went from {before.status} (token {before.token}) to {found[name].status} ({found[name].token})"
            for name, before in self.seen.items()
            if found[name].status not in EDGES[before.status] or found[name].token < before.token
        ]
        assert not wrong, "\n".join(wrong)
        self.seen = found

    # In short

    def parked(self) -> list[str]:
        return [name for name, row in self.rows.items() if row.status == "parked"]

    def free_at(self) -> datetime:
        """When the next row that is not held can be taken; now, if none ever can."""
        live = [row for row in self.rows.values() if row.status in LIVE and row.held_by is None]
        return min((max(row.due_at or START, row.lease_until or START) for row in live), default=self.now)

    def _free_in(self, lane: Lane, node: str) -> list[str]:
        return [
            name
            for name, row in self.rows.items()
            if row.status == lane.status.value and row.is_free(self.now) and row.orphans < 2
            if not self._has(node, name)
        ]

    def _suspects(self) -> list[str]:
        return [name for name, row in self.rows.items() if row.is_lone_due(self.now)]

    def _busy(self, node: str) -> Counter[str]:
        return Counter(flight.claimed.notification.delivery_key for flight in self.flights[node])

    def _lease(self) -> dict[str, Any]:
        return {"lease_s": LEASE_S, "now": self.now}

    def _has(self, node: str, name: str) -> bool:
        """Whether the node works on it still, by its own account, though it may have lost its claim."""
        return name in [flight.name for flight in self.flights[node]]

    def _held_by(self, node: str) -> list[Flight]:
        return [f for f in self.flights[node] if self.rows[f.name].is_held_by(node, f.claimed.token)]

    def _ids_of(self, node: str) -> list[str]:
        return [flight.key[0] for flight in self.flights[node]]

    def _names_of(self, taken: list[Claimed]) -> list[str]:
        names = {item.notification_id: name for name, item in self.items.items()}
        return [names[one.notification.notification_id] for one in taken]

    def _key_of(self, name: str) -> str:
        return list_key(self.rows[name].list_name)

    def _due_at(self, name: str) -> datetime:
        return self.rows[name].due_at or START
