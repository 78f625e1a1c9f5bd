"""Random lives: two nodes claim, attempt, freeze and crash; the channel breaks and heals; operators act on what they
saw; the clock steps.

Which of several rows that are due at the same moment a claim takes is the database's choice, and the model follows it.
Whether a rule can be run may therefore not depend on the state: a rule that needs an occasion makes one.
"""

from dataclasses import dataclass
from functools import partial
from typing import cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.delivery.outcome import (
    Delivered,
    Held,
    Outcome,
    PermanentFailure,
    TransientFailure,
    Uncertain,
    fold,
)
from fieldpost.core.notification import Target, TargetStatus
from support.life import Flight, Life
from support.life_model import DELAY, HOLD, HOLD_MAX, LEASE_S, TARGETS
from support.life_world import World

NOTIFICATIONS_MAX = 6


@dataclass(frozen=True)
class Told:
    """What an adapter says of an attempt. `results` are of the targets still due, in order of address, and repeat."""

    word: str
    results: tuple[str, ...] = ()

    def of(self, flight: Flight) -> Outcome:
        named = tuple(
            Target(address, TargetStatus(self.results[number % len(self.results)]), "a reason")
            for number, address in enumerate(flight.due if self.results else ())
        )
        match self.word:
            case "delivered":
                return Delivered()
            case "transient":
                return TransientFailure("451 later")
            case "permanent":
                return PermanentFailure("554 no")
            case "uncertain":
                return Uncertain("no answer", named)
            case "held":
                return Held("connection refused")
            case _:
                return fold(named)


nodes = st.sampled_from(["a", "b"])
list_names = st.sampled_from(["ops", "ops", "it", "ghosts"])
acts = st.sampled_from(["retry", "retry", "discard"])
results = st.lists(st.sampled_from(["delivered", "due", "failed"]), min_size=1, max_size=3).map(tuple)
outcomes = st.one_of(
    st.sampled_from(["delivered", "transient", "permanent", "uncertain", "held"]).map(Told),
    st.builds(Told, st.sampled_from(["mixed", "uncertain"]), results),
)
moves = st.sampled_from([1, -1, HOLD.seconds, DELAY.seconds, -DELAY.seconds, LEASE_S, -LEASE_S, HOLD_MAX.days * 86400])
several = st.lists(outcomes, min_size=1, max_size=4)


def walk(store_url: str, *, lives: int, steps: int, is_shrunk: bool = True, is_new: bool = False) -> None:
    """So many random lives of at most so many steps each: the same ones as ever, or new ones. Raises at the first that
    differs from the model, with the fewest steps that lead there unless that would take too long."""
    as_asked = settings(
        max_examples=lives,
        stateful_step_count=steps,
        phases=tuple(Phase) if is_shrunk else (Phase.generate,),
        deadline=None,
        derandomize=not is_new,
        suppress_health_check=list(HealthCheck),
    )
    with World(store_url) as world:
        run_state_machine_as_test(partial(LifeMachine, world), settings=as_asked)


class LifeMachine(RuleBasedStateMachine):
    sent: Bundle[str] = Bundle("sent")

    def __init__(self, world: World) -> None:
        super().__init__()
        self.life = Life(world)
        self.clock = world.clock
        self.is_embedded = world.url.startswith("sqlite")

    # What arrives

    @initialize(list_names=st.lists(list_names, min_size=1, max_size=3), target=sent)
    def begin(self, list_names: list[str]) -> MultipleResults[str]:
        return cast(MultipleResults[str], multiple(*map(self.life.submit, list_names)))

    @precondition(lambda self: len(self.life.rows) < NOTIFICATIONS_MAX)
    @rule(list_name=list_names, target=sent)
    def submit(self, list_name: str) -> str:
        return self.life.submit(list_name)

    @rule(name=sent, other=st.sampled_from([None, "list_name", "subject", "body", "site"]))
    def send_again(self, name: str, other: str | None) -> None:
        self.life.send_again(name, other)

    # Attempts as they go

    @rule(node=nodes, told=several, is_heard=st.booleans())
    def attempt(self, node: str, told: list[Told], is_heard: bool = True) -> None:
        """Time passes until something is due, the node takes it and comes to an end; and again. Where it does not hear
        that a result was written it writes that once more, with the row in its hands anew."""
        for one in told:
            self.wait_until_something_is_due()
            self.life.claim_all(node)
            if not is_heard:
                self.life.finish_again(0)
            self.end(node, [one] * NOTIFICATIONS_MAX)

    @rule(node=nodes, told=several, comes_back=st.booleans(), breaks=st.sampled_from(["nothing", "before", "after"]))
    def freeze(self, node: str, told: list[Told], comes_back: bool, breaks: str) -> None:
        """The node takes what is due and stands still past its leases; the channel breaks before or after these are
        over; the other node takes over; the first comes back with its results, or has crashed."""
        self.wait_until_something_is_due()
        self.life.claim_all(node)
        if breaks == "before":
            self.life.hold(set(TARGETS))
        self.clock.advance(LEASE_S)
        if breaks == "after":
            self.life.hold(set(TARGETS))
        self.life.claim_all("b" if node == "a" else "a")
        if comes_back:
            self.end(node, told)
        else:
            self.life.crash(node)

    # The same in single steps

    @rule(node=nodes, lane=st.sampled_from(Lane), limit=st.integers(1, 4), per_key=st.integers(1, 3))
    def claim(self, node: str, lane: Lane, limit: int, per_key: int) -> None:
        self.life.claim(node, lane, limit, per_key)

    @rule(node=nodes, told=several, skip=st.integers(0, 2))
    def finish(self, node: str, told: list[Told], skip: int) -> None:
        self.give_work(node)
        self.end(node, told, skip)

    @rule(node=nodes, act=st.sampled_from(["claim_lone", "claim_probe", "renew", "give_back", "finish_again", "start"]))
    def work(self, node: str, act: str) -> None:
        match act:
            case "claim_lone":
                self.life.claim_lone(node)
            case "claim_probe":
                if not any(row.held_by for row in self.life.rows.values()):
                    self.life.hold(set(TARGETS))
                self.life.claim_probe(node)
            case "renew":
                self.give_work(node)
                self.life.renew(node)
            case "give_back":
                self.give_work(node)
                self.life.give_back(node)
            case "finish_again":
                self.life.finish_again(1)
            case "start" if self.is_embedded:
                self.life.void_all()
            case _:
                self.life.crash(node)

    def end(self, node: str, told: list[Told], skip: int = 0) -> None:
        """What the node has in hand comes to this, but for the first `skip`."""
        flights = self.life.flights[node][skip:]
        self.life.finish(node, [(flight, one.of(flight)) for flight, one in zip(flights, told, strict=False)])

    def give_work(self, node: str) -> None:
        if not self.life.flights[node]:
            self.life.claim_all(node)

    # The channel, operators, the clock

    @rule(news=st.sampled_from(["breaks", "answers again", "works"]), names=st.sets(list_names, min_size=1))
    def the_channel(self, news: str, names: set[str]) -> None:
        if news == "breaks":
            self.life.hold(names)
        else:
            self.life.release_held(is_healthy=news == "works")

    @rule(name=sent, act=acts, changes_missed=st.sampled_from([0, 0, 1, -1]), is_parked=st.booleans())
    def operate(self, name: str, act: str, changes_missed: int, is_parked: bool) -> None:
        """On this one whatever its status, or on one that is parked."""
        if is_parked:
            if not self.life.parked():
                self.attempt("a", [Told("mixed", ("delivered", "failed"))])
            name = next(iter(self.life.parked()), name)
        self.life.operate(act, name, self.life.rows[name].version - changes_missed)

    @rule(seconds=moves, is_set=st.booleans())
    def time_passes(self, seconds: int, is_set: bool) -> None:
        """By itself, or because somebody sets the clock."""
        if is_set or seconds < 0:
            self.clock.step(seconds)
        else:
            self.clock.advance(seconds)

    def wait_until_something_is_due(self) -> None:
        self.clock.advance(max(0.0, (self.life.free_at() - self.life.now).total_seconds()))
