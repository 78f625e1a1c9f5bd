"""The live notifications of sites and their bytes; the rows are read, their bodies are not."""

from collections.abc import Collection

from sqlalchemy import BigInteger, Connection, Text

from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.notification_tables import IS_UNDELIVERED, IS_WAITING
from fieldpost.core.sites.usage import SiteUsage

_SIZES = "source_site_id as site, count(*) as size, sum(octet_length(subject) + octet_length(body)) as bytes"

# Each condition in its own index, repeated literally, so that the planner uses it.
_usage = Statement(
    f"""
    select {_SIZES} from notifications where {IS_WAITING} and source_site_id {{any:sites}} group by source_site_id
    union all
    select {_SIZES} from notifications
    where {IS_UNDELIVERED} and status = 'parked' and source_site_id {{any:sites}} group by source_site_id
    """,
    lists={"sites": "text"},
    result={"site": Text, "size": BigInteger, "bytes": BigInteger},
)


def usage_of(conn: Connection, sites: Collection[str]) -> dict[str, SiteUsage]:
    """The usage of these sites; those without live notifications are missing."""
    found: dict[str, SiteUsage] = {}
    for row in _usage.run(conn, sites=list(sites)) if sites else []:
        found[row.site] = found.get(row.site, SiteUsage()).plus(SiteUsage(row.size, row.bytes))
    return found
