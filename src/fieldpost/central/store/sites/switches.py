"""The history of epochs of each site with two nodes."""

from sqlalchemy import BigInteger, Connection, select

from fieldpost.central.store.engine.purging import DatedTable
from fieldpost.central.store.engine.records import Records
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.site_tables import site_epochs, site_switches
from fieldpost.core.pair.switch import EpochSwitch

_SWITCHES = Records(site_switches, EpochSwitch)

# An epoch is recorded once. A node's report of why it took the epoch completes the entry of its first renewal.
_record = Statement(
    f"""
    insert into site_switches ({_SWITCHES.names}) select {_SWITCHES.names} from {{rows}} where true
    on conflict (site, epoch) do update set cause = excluded.cause, reason = excluded.reason,
        taken_at = excluded.taken_at
    where site_switches.cause = 'taken' and excluded.cause <> 'taken'
    returning epoch
    """,
    rows=_SWITCHES.kinds,
    result={"epoch": BigInteger},
)

RECORDED = DatedTable("site_switches", "recorded_at")


def record(conn: Connection, switch: EpochSwitch) -> bool:
    """Record the epoch; False if it is known with its cause."""
    values = _SWITCHES.values(switch) | {"cause": switch.cause.value}
    return bool(_record.run(conn, [list(values.values())]))


def current(conn: Connection, site: str | None = None) -> dict[str, EpochSwitch]:
    """The switch to the highest epoch by site, of this site or of all."""
    c, e = site_switches.c, site_epochs.c
    query = select(*_SWITCHES.columns).join(site_epochs, (e.site == c.site) & (e.epoch == c.epoch))
    found = _SWITCHES.find(conn, query if site is None else query.where(c.site == site))
    return {switch.site: switch for switch in found}


def newest(conn: Connection, site: str, limit: int) -> list[EpochSwitch]:
    """The newest switches of the site, the highest epoch first."""
    c = site_switches.c
    query = select(*_SWITCHES.columns).where(c.site == site).order_by(c.epoch.desc()).limit(limit)
    return _SWITCHES.find(conn, query)
