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
from collections.abc import Sequence
from datetime import timedelta

from fieldpost.core.delivery.adapter import Adapter, ClaimLost
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import (
    Delivered,
    Evidence,
    Held,
    PermanentFailure,
    TransientFailure,
    Uncertain,
)
from fieldpost.core.delivery.receipt import Receipts, ReceiptStatus
from fieldpost.core.ids import NotificationId
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.core.text import BODY_BYTES_MAX
from fieldpost.testing.contract_settings import (
    DEADLINE_S,
    PATIENCE_S,
    SENDING_DEADLINE_S,
    SHORT_DEADLINE_S,
    SettingsContract,
    in_world,
    seen,
)
from fieldpost.testing.world import HOSTILE_TEXTS, Behaviour, World, envelope

LONGEST_BODY = (
    ("Flow 0 m³/h since 08:14. " * (BODY_BYTES_MAX // 24)).encode()[:BODY_BYTES_MAX].decode("utf-8", "ignore")
)


class AdapterContract(SettingsContract):
    """Subclass it in your tests, under a name that begins with `Test`."""

    limits_requests: bool = False
    """Whether the provider limits the number of requests: then the world also has the behaviour `too_many`."""
    reports_failures: bool = False
    """Whether the provider reports on accepted targets when it is asked: then the world also has `fails_later`."""

    # -- outcomes ------------------------------------------------------------------------------------------------------

    @in_world("accepts")
    async def test_accepted_message_reaches_each_target_once(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, Delivered), seen(outcome)
        assert sorted(target for target, _ in world.copies()) == sorted(world.targets), world.copies()
        named = {target.address: target.status for target in outcome.targets}
        assert set(named.values()) <= {TargetStatus.DELIVERED, TargetStatus.ACCEPTED}, seen(outcome)
        assert not named or set(named) == set(world.targets), seen(outcome)

    @in_world("refuses")
    async def test_rejection_for_good_is_permanent_with_a_reason(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, PermanentFailure), seen(outcome)
        assert outcome.error.strip(), "a failure must say why"
        assert not world.copies()

    @in_world("later")
    async def test_temporary_rejection_is_transient_with_a_reason(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, TransientFailure), seen(outcome)
        assert outcome.error.strip(), "a failure must say why"
        assert not world.copies()

    @in_world("away")
    async def test_unreachable_server_is_not_blamed_on_the_message(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, Held | TransientFailure), seen(outcome)
        assert outcome.error.strip(), "a failure must say why"

    @in_world("silent", deadline_s=SENDING_DEADLINE_S)
    async def test_timeout_after_the_message_was_sent_is_uncertain(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world))
        assert isinstance(outcome, Uncertain), seen(outcome)

    @in_world("hangs", deadline_s=SHORT_DEADLINE_S)
    async def test_timeout_before_the_message_was_sent_is_not_uncertain(self, adapter: Adapter, world: World) -> None:
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

    def test_too_many_requests_pause_without_evidence_against_the_path(self) -> None:
        async def check(adapter: Adapter, world: World) -> None:
            outcome = await adapter.deliver(envelope(world))
            assert isinstance(outcome, Held), seen(outcome)
            assert outcome.kind is HoldKind.RATE_LIMIT, seen(outcome)
            assert outcome.pauses, "the outcome must say what pauses, and for how long"
            assert all(pause.wait > timedelta(0) and pause.reason.strip() for pause in outcome.pauses), seen(outcome)
            assert {pause.address for pause in outcome.pauses} <= {None, *world.targets}, seen(outcome)
            assert outcome.evidence is Evidence.NONE, "a limit is no evidence about the path"
            assert not world.copies()

        if self.limits_requests:
            self._run(("too_many",), check)

    def test_message_that_fails_later_is_accepted_first_and_polled(self) -> None:
        async def check(adapter: Adapter, world: World) -> None:
            outcome = await adapter.deliver(envelope(world))
            ids = [target.provider_id for target in outcome.targets if target.status is TargetStatus.ACCEPTED]
            assert len(ids) == len(world.targets) == len({*ids} - {None}), seen(outcome)
            asked: object = adapter
            assert isinstance(asked, Receipts), "an adapter that accepts must have receipts"
            found = await asked.ask(world.settings, [str(one) for one in ids])
            assert {receipt.provider_id for receipt in found} == {*ids}, found
            assert {receipt.status for receipt in found} <= {ReceiptStatus.FAILED, ReceiptStatus.DUE}, found
            assert all(receipt.error for receipt in found), "a failure must say why"

        if self.reports_failures:
            self._run(("fails_later",), check)

    @in_world("accepts")
    async def test_longest_body_arrives_truncated_at_most(self, adapter: Adapter, world: World) -> None:
        outcome = await adapter.deliver(envelope(world, body=LONGEST_BODY))
        assert isinstance(outcome, Delivered), seen(outcome)
        assert sorted(target for target, _ in world.copies()) == sorted(world.targets), "each target gets one copy"
        for target in outcome.targets:
            assert target.truncated_to is None or 0 < target.truncated_to < len(LONGEST_BODY), seen(outcome)

    @in_world("accepts")
    async def test_hostile_texts_arrive_literally(self, adapter: Adapter, world: World) -> None:
        if world.texts is None:
            return
        for text in HOSTILE_TEXTS:
            outcome = await adapter.deliver(envelope(world, subject=text, body=f"{text}\nend"))
            assert isinstance(outcome, Delivered), seen(outcome)
            for arrived in world.texts()[-len(world.targets) :]:
                assert arrived.count(text) >= 2, f"{text!r} arrived as {arrived!r}"

    # -- time and cancellation -----------------------------------------------------------------------------------------

    @in_world("hangs", "silent", deadline_s=SHORT_DEADLINE_S)
    async def test_attempt_ends_within_its_deadline(self, adapter: Adapter, world: World) -> None:
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
    async def test_nothing_is_sent_if_the_gate_refuses(self, adapter: Adapter, world: World) -> None:
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
    async def test_gate_is_asked_before_the_message_is_sent(self, adapter: Adapter, world: World) -> None:
        arrived: list[int] = []
        await adapter.deliver(envelope(world, gate=lambda: arrived.append(len(world.copies()))))
        assert arrived, "the gate was never called"
        assert arrived[0] == 0, "the gate was called after the message was sent"

    @in_world("accepts")
    async def test_reached_targets_are_recorded_before_more_is_sent(self, adapter: Adapter, world: World) -> None:
        """A node that dies in the middle of an attempt has stored whom it reached."""
        recorded: list[str] = []
        forgotten: set[str] = set()

        async def record(targets: Sequence[Target]) -> None:
            await asyncio.sleep(0)
            recorded.extend(target.address for target in targets)

        def gate() -> None:
            forgotten.update({target for target, _ in world.copies()}.difference(recorded))

        targets = world.many or world.targets
        outcome = await adapter.deliver(envelope(world, targets=targets, gate=gate, record_reached=record))
        assert isinstance(outcome, Delivered), seen(outcome)
        assert not forgotten, f"more was sent before these were recorded: {sorted(forgotten)[:5]}"
        assert len(recorded) == len(set(recorded)), "a target was recorded twice"
        assert set(recorded) <= {target for target, _ in world.copies()}, "recorded, but not reached"

    @in_world("accepts")
    async def test_nothing_more_is_sent_after_the_claim_was_lost(self, adapter: Adapter, world: World) -> None:
        arrived: list[int] = []

        async def record(_: Sequence[Target]) -> None:
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

    def test_earlier_attempts_do_not_change_the_outcome(self) -> None:
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
    async def test_concurrent_attempts_do_not_interfere(self, adapter: Adapter, world: World) -> None:
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
