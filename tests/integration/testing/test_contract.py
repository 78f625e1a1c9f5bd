"""The contract itself: a sound adapter passes, and each defect is found by the test that is meant for it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from fieldpost.core.delivery.adapter import Adapter, ClaimLost, Envelope
from fieldpost.core.delivery.outcome import Delivered, Held, Outcome, PermanentFailure, TransientFailure, Uncertain
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.core.secret import Secret
from fieldpost.testing import AdapterContract, Behaviour, World

CANARY = "canary-0815"


class Pigeon:
    """An adapter whose world is a loft in this process: `settings["loft"]` says how it behaves."""

    type = "pigeon"
    secrets = frozenset({"ring"})

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        for name in settings:
            if name not in ("loft", "ring", "height_m"):
                raise InvalidInput("settings.unknown", f"{name} is unknown", field=name)
        if type(settings.get("height_m", 1)) is not int:
            raise InvalidInput("settings.invalid", "height_m must be an int", field="height_m")
        return {"height_m": 30, **settings}

    def check_target(self, address: str) -> str:
        if not address.isascii() or not address.isalnum() or len(address) > 40:
            raise InvalidInput("loft.invalid", "address must be short and plain", field="address")
        return address.lower()

    def target_key(self, address: str) -> str:
        return address

    async def deliver(self, envelope: Envelope) -> Outcome:
        loft: Any = envelope.settings["loft"]
        envelope.gate()
        try:
            async with asyncio.timeout(self.deadline_s * 0.9):
                return await self.fly(loft, envelope)
        except TimeoutError:
            return Uncertain("no answer") if loft.behaviour == "silent" else TransientFailure("no answer")

    async def fly(self, loft: Any, envelope: Envelope) -> Outcome:
        match loft.behaviour:
            case "refuses" | "repeats":
                return PermanentFailure("refused")
            case "later":
                return TransientFailure("later")
            case "away":
                return Held("nobody there")
            case "hangs":
                await asyncio.Event().wait()
        loft.copies += [(target, envelope.notification_id) for target in envelope.targets]
        if loft.behaviour == "silent":
            await asyncio.Event().wait()
        return Delivered()

    async def close(self) -> None:
        pass


class Loft:
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.copies: list[tuple[str, str]] = []


class PigeonContract(AdapterContract):
    good_targets = ("north", "South")
    bad_targets = ("", "no way")
    bad_settings = (("height_m", "high"),)

    def __init__(self, kind: Callable[[float], Adapter] = Pigeon) -> None:
        self._kind = kind

    def make(self, deadline_s: float) -> Adapter:
        return self._kind(deadline_s)

    @asynccontextmanager
    async def world(self, behaviour: Behaviour) -> AsyncIterator[World]:
        loft = Loft(behaviour)
        yield World({"loft": loft, "ring": Secret(CANARY)}, ("north", "south"), lambda: loft.copies)


TESTS = [name for name in dir(AdapterContract) if name.startswith("test_")]


@pytest.mark.parametrize("test", TESTS)
def test_a_sound_adapter_passes(test: str) -> None:
    getattr(PigeonContract(), test)()


@pytest.mark.parametrize("test", TESTS)
def test_sound_adapter_that_sends_to_targets_in_turn_passes(test: str) -> None:
    getattr(PigeonContract(FliesOneByOne), test)()


class DeliversTwice(Pigeon):
    async def fly(self, loft: Any, envelope: Envelope) -> Outcome:
        await super().fly(loft, envelope)
        return await super().fly(loft, envelope)


class SaysDeliveredToAll(Pigeon):
    async def fly(self, loft: Any, envelope: Envelope) -> Outcome:
        await super().fly(loft, envelope)
        return Delivered()


class BlamesTheMessage(Pigeon):
    async def fly(self, loft: Any, envelope: Envelope) -> Outcome:
        outcome = await super().fly(loft, envelope)
        return PermanentFailure("gone") if isinstance(outcome, Held | TransientFailure) else outcome


class NeverUncertain(Pigeon):
    async def deliver(self, envelope: Envelope) -> Outcome:
        outcome = await super().deliver(envelope)
        return TransientFailure("no answer") if isinstance(outcome, Uncertain) else outcome


class AlwaysUncertain(Pigeon):
    async def deliver(self, envelope: Envelope) -> Outcome:
        outcome = await super().deliver(envelope)
        return Uncertain("who knows") if isinstance(outcome, TransientFailure) else outcome


class SwallowsCancellation(Pigeon):
    async def deliver(self, envelope: Envelope) -> Outcome:
        try:
            return await super().deliver(envelope)
        except asyncio.CancelledError:
            return TransientFailure("cancelled")


class NeverAsksTheGate(Pigeon):
    async def deliver(self, envelope: Envelope) -> Outcome:
        with suppress(ClaimLost):
            envelope.gate()
        return await self.fly(envelope.settings["loft"], envelope)


class AsksTooLate(Pigeon):
    async def deliver(self, envelope: Envelope) -> Outcome:
        outcome = await self.fly(envelope.settings["loft"], envelope)
        envelope.gate()
        return outcome


class FliesOneByOne(Pigeon):
    """A sound adapter that reaches one target after the other."""

    async def fly(self, loft: Any, envelope: Envelope) -> Outcome:
        outcome: Outcome = Delivered()
        for number, target in enumerate(envelope.targets):
            if number:
                await self.record(envelope, envelope.targets[number - 1])
                envelope.gate()
            outcome = await super().fly(loft, replace(envelope, targets=(target,)))
            if not isinstance(outcome, Delivered):
                break
        return outcome

    async def record(self, envelope: Envelope, target: str) -> None:
        await envelope.record_reached([Target(target, TargetStatus.DELIVERED)])


class RecordsNothing(FliesOneByOne):
    async def record(self, envelope: Envelope, target: str) -> None:
        pass


class RecordsAhead(FliesOneByOne):
    async def record(self, envelope: Envelope, target: str) -> None:
        await envelope.record_reached([Target("nobody", TargetStatus.DELIVERED)])
        await super().record(envelope, target)


class FliesOnWithoutItsClaim(FliesOneByOne):
    async def record(self, envelope: Envelope, target: str) -> None:
        with suppress(ClaimLost):
            await super().record(envelope, target)


class Remembers(Pigeon):
    has_failed = False

    async def fly(self, loft: Any, envelope: Envelope) -> Outcome:
        if self.has_failed:
            return Held("I was refused once")
        outcome = await super().fly(loft, envelope)
        self.has_failed = not isinstance(outcome, Delivered)
        return outcome


class NewIdEachTime(Pigeon):
    async def fly(self, loft: Any, envelope: Envelope) -> Outcome:
        outcome = await super().fly(loft, envelope)
        loft.copies[:] = [(target, str(number)) for number, (target, _) in enumerate(loft.copies)]
        return outcome


class TellsInItsError(Pigeon):
    async def fly(self, loft: Any, envelope: Envelope) -> Outcome:
        outcome = await super().fly(loft, envelope)
        secret: Any = envelope.settings["ring"]
        return PermanentFailure(f"not {secret.reveal()}") if isinstance(outcome, PermanentFailure) else outcome


class TellsInItsLog(Pigeon):
    async def fly(self, loft: Any, envelope: Envelope) -> Outcome:
        secret: Any = envelope.settings["ring"]
        logging.getLogger("pigeon").warning("ring %s", secret.reveal())
        return await super().fly(loft, envelope)


class TellsInARefusal(Pigeon):
    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        secret: Any = settings["ring"]
        try:
            return super().check_settings(settings)
        except InvalidInput as error:
            raise InvalidInput(error.code, f"{error.message} with {secret.reveal()}", field=error.field) from None


class TakesAnySetting(Pigeon):
    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        return dict(settings)


class RaisesForATarget(Pigeon):
    def check_target(self, address: str) -> str:
        return super().check_target(address.encode("ascii").decode())


class ChangesATarget(Pigeon):
    def check_target(self, address: str) -> str:
        return super().check_target(address) + "x"


class IgnoresItsDeadline(Pigeon):
    def __init__(self, deadline_s: float) -> None:
        super().__init__(600)


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (DeliversTwice, "test_accepted_message_reaches_each_target_once"),
        (SaysDeliveredToAll, "test_rejection_for_good_is_permanent_with_a_reason"),
        (SaysDeliveredToAll, "test_temporary_rejection_is_transient_with_a_reason"),
        (BlamesTheMessage, "test_unreachable_server_is_not_blamed_on_the_message"),
        (NeverUncertain, "test_timeout_after_the_message_was_sent_is_uncertain"),
        (AlwaysUncertain, "test_timeout_before_the_message_was_sent_is_not_uncertain"),
        (IgnoresItsDeadline, "test_attempt_ends_within_its_deadline"),
        (SwallowsCancellation, "test_cancellation_passes_through_at_once"),
        (NeverAsksTheGate, "test_nothing_is_sent_if_the_gate_refuses"),
        (AsksTooLate, "test_gate_is_asked_before_the_message_is_sent"),
        (AsksTooLate, "test_nothing_is_sent_if_the_gate_refuses"),
        (RecordsNothing, "test_reached_targets_are_recorded_before_more_is_sent"),
        (RecordsAhead, "test_reached_targets_are_recorded_before_more_is_sent"),
        (FliesOnWithoutItsClaim, "test_nothing_more_is_sent_after_the_claim_was_lost"),
        (Remembers, "test_earlier_attempts_do_not_change_the_outcome"),
        (NewIdEachTime, "test_a_second_copy_is_recognised_as_one"),
        (TellsInItsError, "test_no_secret_appears_in_outcome_log_or_transcript"),
        (TellsInItsLog, "test_no_secret_appears_in_outcome_log_or_transcript"),
        (TellsInARefusal, "test_error_of_a_rejected_setting_contains_no_secret"),
        (TakesAnySetting, "test_error_of_a_bad_setting_names_its_field"),
        (RaisesForATarget, "test_bad_target_raises_invalid_input_only"),
        (ChangesATarget, "test_good_target_is_stored_in_canonical_form"),
    ],
)
def test_a_defect_is_found_by_the_test_meant_for_it(kind: type[Pigeon], test: str) -> None:
    with pytest.raises((AssertionError, UnicodeError)):
        getattr(PigeonContract(kind), test)()
