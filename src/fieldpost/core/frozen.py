"""Immutable values that are made thousands of times per second.

The constructor of a frozen dataclass sets each field by a call, which takes three to eight times as long as an
assignment: a tenth of the CPU time of a delivery. The type checker refuses assignments to these values just the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...


@overload
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T] | None = None, /, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """`dataclass(frozen=True, slots=True)`, with the immutability left to the type checker."""

    def made(cls: type[T]) -> type[T]:
        return dataclass(cls, slots=True, unsafe_hash=True, kw_only=kw_only)

    return made if cls is None else made(cls)
