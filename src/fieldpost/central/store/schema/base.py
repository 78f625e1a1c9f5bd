"""The catalogue of all tables, in which constraints and indexes are named by rule."""

from sqlalchemy import Index, MetaData, text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index on the rows that meet a condition, on both databases."""
    return Index(name, *columns, unique=unique, postgresql_where=text(where), sqlite_where=text(where))
