"""The part of the adapter contract about settings, targets and secrets, and the way in which its tests run."""

import asyncio
import logging
import re
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from structlog.testing import capture_logs

from fieldpost.core.delivery.adapter import Adapter, Described
from fieldpost.core.delivery.outcome import (
    Outcome,
    Uncertain,
)
from fieldpost.core.errors import InvalidInput
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
    """Turn a coroutine method into a test that runs once per behaviour, all at the same time, each with its own adapter
    and world."""

    def decorate(check: ContractCheck) -> Callable[[Any], None]:
        def test(self: "SettingsContract") -> None:
            self._run(behaviours, partial(check, self), deadline_s)

        # Not functools.wraps: pytest would take `adapter` and `world` for fixtures.
        test.__name__, test.__qualname__, test.__doc__ = check.__name__, check.__qualname__, check.__doc__
        return test

    return decorate


class SettingsContract:
    """The tests of settings, targets and secrets; `AdapterContract` adds those of outcomes."""

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

    # -- secrets -------------------------------------------------------------------------------------------------------

    def test_no_secret_appears_in_outcome_log_or_transcript(self) -> None:
        texts: list[str] = []
        canaries: set[str] = set()

        async def check(adapter: Adapter, world: World) -> None:
            planted = world.canaries
            assert planted or not adapter.secrets, "the world's settings must contain its secrets as Secret"
            canaries.update(planted)
            outcomes = (adapter.deliver(envelope(world, transcript=transcript)) for transcript in (None, texts.append))
            texts.extend(map(repr, await asyncio.gather(*outcomes)))

        handler = _Lines(texts)
        logging.getLogger().addHandler(handler)
        try:
            with capture_logs() as lines:
                self._run(BEHAVIOURS, check, SHORT_DEADLINE_S)
            texts += map(repr, lines)
        finally:
            logging.getLogger().removeHandler(handler)
        for canary in canaries:
            assert not any(canary in text for text in texts), f"the secret {canary!r} leaked: {texts}"

    @in_world("accepts")
    async def test_error_of_a_rejected_setting_contains_no_secret(self, adapter: Adapter, world: World) -> None:
        for field, value in (*self.bad_settings, _UNKNOWN):
            refused = _refusal(adapter, {**world.settings, field: value})
            text = "".join(traceback.format_exception(refused)) if refused else ""
            assert not any(canary in text for canary in world.canaries), f"{field}: the error contains a secret"

    # -- settings and targets ------------------------------------------------------------------------------------------

    @in_world("accepts")
    async def test_checked_settings_are_complete_and_stable(self, adapter: Adapter, world: World) -> None:
        full = adapter.check_settings(world.settings)
        assert set(world.settings) <= set(full), "a setting that was given is missing"
        assert adapter.check_settings(full) == full, "checked settings must pass the check unchanged"
        for name in adapter.secrets & set(full):
            assert isinstance(full[name], Secret), f"{name} is a secret and must stay of that type"

    @in_world("accepts")
    async def test_setting_descriptions_are_true(self, adapter: Adapter, world: World) -> None:
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
    async def test_error_of_a_bad_setting_names_its_field(self, adapter: Adapter, world: World) -> None:
        assert self.bad_settings, "bad_settings must give some examples"
        for field, value in (*self.bad_settings, _UNKNOWN):
            refused = _refusal(adapter, {**world.settings, field: value})
            assert refused is not None, f"{field}={value!r} was accepted"
            assert refused.field == field, f"the error for {field}={value!r} names the field {refused.field!r}"

    def test_good_target_is_stored_in_canonical_form(self) -> None:
        adapter = self.make(DEADLINE_S)
        assert self.good_targets, "good_targets must give some examples"
        for target in self.good_targets:
            kept = adapter.check_target(target)
            assert adapter.check_target(kept) == kept, f"{kept!r} changes when it is checked again"
            assert adapter.target_key(kept) == adapter.target_key(kept)

    def test_bad_target_raises_invalid_input_only(self) -> None:
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
    async def test_invalid_stored_settings_end_in_an_outcome(self, adapter: Adapter, world: World) -> None:
        """A stored row may contain values that an older version accepted."""
        for field, value in self.bad_settings:
            outcome = await adapter.deliver(envelope(world, settings={**world.settings, field: value}))
            assert not isinstance(outcome, Uncertain), seen(outcome)

    def test_type_and_deadline_are_valid(self) -> None:
        adapter = self.make(DEADLINE_S)
        assert re.fullmatch(r"[a-z][a-z0-9_]{0,31}", adapter.type), "type must be a lower-case identifier"
        assert adapter.deadline_s > 0
        assert isinstance(adapter.secrets, frozenset)

    def _run(
        self,
        behaviours: Sequence[Behaviour],
        check: Callable[[Adapter, World], Coroutine[Any, Any, None]],
        deadline_s: float = DEADLINE_S,
    ) -> None:
        async def run(behaviour: Behaviour) -> None:
            async with self.world(behaviour) as world:
                assert len(world.targets) >= 2, "the world needs at least two targets"
                adapter = self.make(deadline_s)
                try:
                    await check(adapter, world)
                finally:
                    await adapter.close()

        async def run_all() -> None:
            await asyncio.gather(*map(run, behaviours))

        asyncio.run(run_all())


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
