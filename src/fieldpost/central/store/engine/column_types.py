"""Column types that differ between the two databases: ids and moments.

An id is `uuid` on PostgreSQL and text on SQLite; a moment is `timestamptz` or integer microseconds. Python sees the
same values: a str of 36 characters, an aware datetime in UTC. The types define result processors instead of
`process_result_value`, which saves a call per value where nothing has to be converted.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Dialect, Text
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP, UUID
from sqlalchemy.types import TypeDecorator, TypeEngine

from fieldpost.core.times import from_microseconds, to_microseconds

Json = JSON().with_variant(JSONB(), "postgresql")
Key = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is compared byte by byte, whatever the database's locale."""


class Id(TypeDecorator[str]):
    """A UUID in its one spelling."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(UUID(as_uuid=False) if dialect.name == "postgresql" else Text())

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], str | None] | None:
        return _to_str if dialect.name == "postgresql" else None


class Moment(TypeDecorator[datetime]):
    """An instant in UTC, to the microsecond."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(TIMESTAMP(timezone=True) if dialect.name == "postgresql" else BigInteger())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        return value if value is None or dialect.name == "postgresql" else to_microseconds(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None] | None:
        return None if dialect.name == "postgresql" else _to_moment


def _to_str(value: Any) -> str | None:
    return None if value is None else str(value)


def _to_moment(value: Any) -> datetime | None:
    return None if value is None else from_microseconds(value)
