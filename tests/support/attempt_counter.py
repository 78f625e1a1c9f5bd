"""Counts the attempts of real adapters, by which a `Centre` knows that nothing more begins."""

from typing import TypeVar

from fieldpost.core.delivery.adapter import Adapter, Envelope
from fieldpost.core.delivery.outcome import Outcome

AdapterT = TypeVar("AdapterT", bound=Adapter)


class AttemptCounter:
    """Takes the place of a centre's scripted adapter."""

    type = "counting"

    def __init__(self) -> None:
        self.count = 0

    def of(self, adapter: AdapterT) -> AdapterT:
        """The adapter, with its attempts counted."""
        deliver = adapter.deliver

        async def counted(envelope: Envelope) -> Outcome:
            self.count += 1
            return await deliver(envelope)

        adapter.deliver = counted  # type: ignore[method-assign]
        return adapter
