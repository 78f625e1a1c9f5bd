"""The test suite that every adapter must pass, including third-party adapters.

    class TestPagerContract(AdapterContract):
        good_targets = ("4711",)
        bad_targets = ("", "47 11")
        bad_settings = (("url", "ftp://pager.example/"),)

        def make(self, deadline_s: float) -> Adapter:
            return PagerAdapter(deadline_s=deadline_s)

        @asynccontextmanager
        async def world(self, behaviour: Behaviour) -> AsyncIterator[World]:
            async with FakePager(behaviour) as pager:
                yield World({"url": pager.url, "token": Secret("canary")}, ("4711", "4712"), pager.copies)

It requires only pytest; each test runs its own event loop. Write the world as a real server on loopback that implements
the behaviours. The name of a test states its claim; a failure shows the outcome.
"""

import asyncio
import logging
import re
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from structlog.testing import capture_logs

from fieldpost.core.delivery.adapter import Adapter, ClaimLost, Described
from fieldpost.core.delivery.outcome import Delivered, Held, Outcome, PermanentFailure, TransientFailure, Uncertain
from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import NotificationId
from fieldpost.core.notification import TargetStatus
from fieldpost.core.secret import Secret
from fieldpost.testing.world import BEHAVIOURS, NASTY, Behaviour, World, envelope

DEADLINE_S = 20.0
SHORT_DEADLINE_S = 1.0
"""For tests without an answer."""
SENDING_DEADLINE_S = 3.0
"""For tests without an answer after the message was sent; long enough for a busy machine."""
PATIENCE_S = 10.0
"""How far an adapter may exceed its deadline on a busy machine before a test fails."""


ContractCheck = Callable[[Any, Adapter, World], Coroutine[Any, Any, None]]


def in_world(
    *behaviours: Behaviour, deadline_s: float = DEADLINE_S
) -> Callable[[ContractCheck], Callable[[Any], None]]:
    """Turn a coroutine method into a test that runs once per behaviour, with a new adapter and world each time."""

    def decorate(check: ContractCheck) -> Callable[[Any], None]:
        def test(self: "AdapterContract") -> None:
            for behaviour in behaviours:
                self._run(behaviour, partial(check, self), deadline_s)

        # Not functools.wraps: pytest would take `adapter` and `world` for fixtures.
        test.__name__, test.__qualname__, test.__doc__ = check.__name__, check.__qualname__, check.__doc__
        return test

    return decorate


class AdapterContract:
    """Subclass it in your tests, under a name that begins with `Test`."""

    good_targets: tuple[str, ...] = ()
    bad_targets: tuple[str, ...] = ()
    bad_settings: tuple[tuple[str, object], ...] = ()
    """Fields and values that must be rejected in otherwise valid settings."""

    def make(self, deadline_s: float) -> Adapter:
        """A new adapter with this deadline for attempts."""
        raise NotImplementedError

    def world(self, behaviour: Behaviour) -> AbstractAsyncContextManager[World]:
        """The service with this behaviour."""
        raise NotImplementedError

    # -- outcomes ------------------------------------------------------------------------------------------------------

    @in_world("accepts")
    async def test_what_is_accepted_is_delivered_once_to_each_target(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, Delivered), seen(outcome)
        assert sorted(target for target, _ in world.copies()) == sorted(world.targets), world.copies()
        named = {target.address: target.status for target in outcome.targets}
        assert set(named.values()) <= {TargetStatus.DELIVERED}, seen(outcome)
        assert not named or set(named) == set(world.targets), seen(outcome)

    @in_world("refuses")
    async def test_what_is_refused_for_good_is_permanent_and_says_why(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, PermanentFailure), seen(outcome)
        assert outcome.error.strip(), "a failure must say why"
        assert not world.copies()

    @in_world("later")
    async def test_what_is_put_off_is_transient_and_says_why(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, TransientFailure), seen(outcome)
        assert outcome.error.strip(), "a failure must say why"
        assert not world.copies()

    @in_world("away")
    async def test_nobody_there_is_never_blamed_on_the_message(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, Held | TransientFailure), seen(outcome)
        assert outcome.error.strip(), "a failure must say why"

    @in_world("silent", deadline_s=SENDING_DEADLINE_S)
    async def test_silence_after_the_message_was_sent_is_uncertain(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, Uncertain), seen(outcome)

    @in_world("hangs", deadline_s=SHORT_DEADLINE_S)
    async def test_silence_before_the_message_was_sent_is_known_to_be_before(
        self, adapter: Adapter, world: World
    ) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, Held | TransientFailure), seen(outcome)
        assert not world.copies()

    @in_world("accepts")
    async def test_a_second_copy_is_recognised_as_one(self, adapter: Adapter, world: World) -> None:
        for _ in range(2):
            await adapter.deliver(envelope(world))
        other = envelope(world, notification_id=NotificationId("0198c8a0-0000-7000-8000-000000000002"))
        await adapter.deliver(other)
        ids = [copy for target, copy in world.copies() if target == world.targets[0]]
        assert len(ids) == 3, world.copies()
        assert ids[0] == ids[1] != ids[2], world.copies()

    # -- time and cancellation -----------------------------------------------------------------------------------------

    @in_world("hangs", "silent", deadline_s=SHORT_DEADLINE_S)
    async def test_an_attempt_ends_by_itself_within_its_deadline(self, adapter: Adapter, world: World) -> None:
        assert adapter.deadline_s == SHORT_DEADLINE_S, "make() must give the adapter its deadline"
        try:
            async with asyncio.timeout(SHORT_DEADLINE_S + PATIENCE_S):
                await adapter.deliver(envelope(world))
        except TimeoutError:
            raise AssertionError(f"no outcome {PATIENCE_S:g} s after the deadline") from None

    @in_world("hangs", "silent")
    async def test_cancellation_passes_through_at_once(self, adapter: Adapter, world: World) -> None:
        task = asyncio.create_task(adapter.deliver(envelope(world)))
        await asyncio.wait([task], timeout=0.3)
        assert not task.done(), f"the attempt should hang, but {seen(task.result())}"
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
        assert done, "the attempt continues after its cancellation"
        assert task.cancelled(), "it must not turn a cancellation into an outcome"

    @in_world("accepts")
    async def test_nothing_is_sent_when_the_gate_says_no(self, adapter: Adapter, world: World) -> None:
        def gate() -> None:
            raise ClaimLost("another node has it")

        try:
            outcome = await adapter.deliver(envelope(world, gate=gate))
        except ClaimLost:
            pass
        else:
            raise AssertionError(f"the gate was not called or its exception was ignored: {seen(outcome)}")
        assert not world.copies()

    @in_world("accepts")
    async def test_the_gate_is_asked_before_the_message_goes(self, adapter: Adapter, world: World) -> None:
        arrived: list[int] = []
        await adapter.deliver(envelope(world, gate=lambda: arrived.append(len(world.copies()))))
        assert arrived, "the gate was never called"
        assert arrived[0] == 0, "the gate was called after the message was sent"

    @in_world("accepts")
    async def test_reached_targets_are_recorded_before_more_is_sent(self, adapter: Adapter, world: World) -> None:
        """A node that dies in the middle of an attempt has stored whom it reached."""
        recorded: list[str] = []
        forgotten: set[str] = set()

        async def record(targets: Sequence[str]) -> None:
            await asyncio.sleep(0)
            recorded.extend(targets)

        def gate() -> None:
            forgotten.update({target for target, _ in world.copies()}.difference(recorded))

        targets = world.many or world.targets
        outcome = await adapter.deliver(envelope(world, targets=targets, gate=gate, record_reached=record))
        assert isinstance(outcome, Delivered), seen(outcome)
        assert not forgotten, f"more was sent before these were recorded: {sorted(forgotten)[:5]}"
        assert len(recorded) == len(set(recorded)), "a target was recorded twice"
        assert set(recorded) <= {target for target, _ in world.copies()}, "recorded, but not reached"

    @in_world("accepts")
    async def test_nothing_more_is_sent_when_the_claim_is_lost_in_between(self, adapter: Adapter, world: World) -> None:
        arrived: list[int] = []

        async def record(_: Sequence[str]) -> None:
            arrived.append(len(world.copies()))
            raise ClaimLost("another node has it")

        try:
            await adapter.deliver(envelope(world, targets=world.many or world.targets, record_reached=record))
        except ClaimLost:
            await adapter.close()
            assert [len(world.copies())] == arrived, "more was sent although the claim was lost"
        else:
            assert not arrived, "the adapter ignored that its claim was lost"

    # -- nothing kept that changes an outcome --------------------------------------------------------------------------

    def test_what_came_before_changes_no_outcome(self) -> None:
        """One adapter used with all behaviours in turn has the same outcomes as new adapters."""
        there_and_back: tuple[Behaviour, ...] = ("accepts", "refuses", "later", "away", "refuses", "accepts")

        async def kinds(is_one: bool) -> list[str]:
            found = []
            adapter = self.make(DEADLINE_S)
            for behaviour in there_and_back:
                if not is_one:
                    await adapter.close()
                    adapter = self.make(DEADLINE_S)
                async with self.world(behaviour) as world:
                    found.append((await adapter.deliver(envelope(world))).word)
            await adapter.close()
            return found

        assert asyncio.run(kinds(is_one=True)) == asyncio.run(kinds(is_one=False))

    @in_world("accepts")
    async def test_many_attempts_at_a_time_do_not_get_in_each_others_way(self, adapter: Adapter, world: World) -> None:
        many = [
            envelope(world, notification_id=NotificationId(f"0198c8a0-0000-7000-8000-{number:012}"))
            for number in range(30)
        ]
        outcomes = await asyncio.gather(*map(adapter.deliver, many))
        assert {outcome.word for outcome in outcomes} == {"delivered"}, [seen(outcome) for outcome in outcomes]
        assert len(world.copies()) == len(set(world.copies())) == 30 * len(world.targets)

    def test_it_can_be_closed_twice_and_before_use(self) -> None:
        async def check() -> None:
            adapter = self.make(DEADLINE_S)
            await adapter.close()
            await adapter.close()

        asyncio.run(check())

    # -- secrets -------------------------------------------------------------------------------------------------------

    def test_no_secret_is_told_in_an_outcome_a_log_or_to_a_witness(self) -> None:
        told: list[str] = []
        canaries: set[str] = set()

        async def check(adapter: Adapter, world: World) -> None:
            planted = world.canaries
            assert planted or not adapter.secrets, "the world's settings must contain its secrets as Secret"
            canaries.update(planted)
            for transcript in (None, told.append):
                told.append(repr(await adapter.deliver(envelope(world, transcript=transcript))))

        handler = _Lines(told)
        logging.getLogger().addHandler(handler)
        try:
            for behaviour in BEHAVIOURS:
                with capture_logs() as lines:
                    self._run(behaviour, check, SHORT_DEADLINE_S)
                told += map(repr, lines)
        finally:
            logging.getLogger().removeHandler(handler)
        for canary in canaries:
            assert not any(canary in text for text in told), f"the secret {canary!r} leaked: {told}"

    @in_world("accepts")
    async def test_a_refused_setting_does_not_repeat_a_secret(self, adapter: Adapter, world: World) -> None:
        for field, value in (*self.bad_settings, _UNKNOWN):
            refused = _refusal(adapter, {**world.settings, field: value})
            text = "".join(traceback.format_exception(refused)) if refused else ""
            assert not any(canary in text for canary in world.canaries), f"{field}: the error contains a secret"

    # -- settings and targets ------------------------------------------------------------------------------------------

    @in_world("accepts")
    async def test_settings_are_filled_in_and_stay_as_they_are(self, adapter: Adapter, world: World) -> None:
        full = adapter.check_settings(world.settings)
        assert set(world.settings) <= set(full), "a setting that was given is missing"
        assert adapter.check_settings(full) == full, "checked settings must pass the check unchanged"
        for name in adapter.secrets & set(full):
            assert isinstance(full[name], Secret), f"{name} is a secret and must stay of that type"

    @in_world("accepts")
    async def test_what_it_says_of_its_settings_is_so(self, adapter: Adapter, world: World) -> None:
        """A description is optional; without one, forms have a single field for all settings."""
        described: object = adapter
        if not isinstance(described, Described):
            return
        names = [field.name for field in described.fields]
        assert len(set(names)) == len(names), "a setting is described twice"
        assert adapter.secrets <= set(names), "a secret is not described"
        full = adapter.check_settings(world.settings)
        assert set(full) <= set(names), f"not described: {sorted(set(full).difference(names))}"
        for field in described.fields:
            without = {name: value for name, value in world.settings.items() if name != field.name}
            if field.is_required:
                assert _refusal(adapter, without) is not None, f"{field.name} is not required"
            assert bool(field.choices) == (field.kind == "choice"), f"{field.name}: choices are for a choice"

    @in_world("accepts")
    async def test_a_bad_setting_is_refused_naming_its_field(self, adapter: Adapter, world: World) -> None:
        assert self.bad_settings, "bad_settings must give some examples"
        for field, value in (*self.bad_settings, _UNKNOWN):
            refused = _refusal(adapter, {**world.settings, field: value})
            assert refused is not None, f"{field}={value!r} was accepted"
            assert refused.field == field, f"the error for {field}={value!r} names the field {refused.field!r}"

    def test_a_good_target_is_kept_in_one_form(self) -> None:
        adapter = self.make(DEADLINE_S)
        assert self.good_targets, "good_targets must give some examples"
        for target in self.good_targets:
            kept = adapter.check_target(target)
            assert adapter.check_target(kept) == kept, f"{kept!r} changes when it is checked again"
            assert adapter.target_key(kept) == adapter.target_key(kept)

    def test_a_bad_target_is_refused_and_nothing_else_is_raised(self) -> None:
        adapter = self.make(DEADLINE_S)
        assert self.bad_targets, "bad_targets must give some examples"
        for target in self.bad_targets:
            try:
                kept = adapter.check_target(target)
            except InvalidInput:
                continue
            raise AssertionError(f"{target!r} was accepted as {kept!r}")
        for target in (*NASTY, *(nasty + good for good in self.good_targets for nasty in NASTY)):
            try:
                kept = adapter.check_target(target)
            except InvalidInput:
                continue
            assert adapter.check_target(kept) == kept, f"{kept!r} changes when it is checked again"
            assert kept.isprintable(), f"{kept!r} contains unprintable characters"

    @in_world("accepts")
    async def test_stored_settings_that_are_not_valid_come_to_an_outcome(self, adapter: Adapter, world: World) -> None:
        """A stored row may contain values that an older version accepted."""
        for field, value in self.bad_settings:
            outcome = await adapter.deliver(envelope(world, settings={**world.settings, field: value}))
            assert not isinstance(outcome, Uncertain), seen(outcome)

    def test_it_says_what_it_is(self) -> None:
        adapter = self.make(DEADLINE_S)
        assert re.fullmatch(r"[a-z][a-z0-9_]{0,31}", adapter.type), "type must be a lower-case identifier"
        assert adapter.deadline_s > 0
        assert isinstance(adapter.secrets, frozenset)

    def _run(
        self,
        behaviour: Behaviour,
        check: Callable[[Adapter, World], Coroutine[Any, Any, None]],
        deadline_s: float = DEADLINE_S,
    ) -> None:
        async def run() -> None:
            async with self.world(behaviour) as world:
                assert len(world.targets) >= 2, "the world needs at least two targets"
                adapter = self.make(deadline_s)
                try:
                    await check(adapter, world)
                finally:
                    await adapter.close()

        asyncio.run(run())


_UNKNOWN = ("no_such_setting_anywhere", 1)


def seen(outcome: Outcome) -> str:
    return f"the outcome was {outcome!r}"


def _refusal(adapter: Adapter, settings: Mapping[str, object]) -> InvalidInput | None:
    try:
        adapter.check_settings(settings)
    except InvalidInput as error:
        return error
    return None


class _Lines(logging.Handler):
    """Collects messages of the standard library's logging."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__()
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(self.format(record))
