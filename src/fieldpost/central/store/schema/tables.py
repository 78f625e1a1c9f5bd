"""The whole schema: importing this module fills the catalogue. A test proves that the migrations lead exactly here."""

from fieldpost.central.store.schema import (  # noqa: F401
    account_tables,
    audit_tables,
    event_tables,
    list_tables,
    node_tables,
    notification_tables,
    route_tables,
    search_tables,
    site_tables,
)
from fieldpost.central.store.schema.base import metadata

__all__ = ["metadata"]
