"""kpis.md: every KPI, from the one registry that tiles, API, command line and Prometheus read too."""

from pathlib import Path

from markdown import code, page, table

from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.watch.exposition import of_kpi
from fieldpost.central.watch.watch import WatchOptions
from fieldpost.core.kpi import KPIS, SWEEPS_UNTIL_OVERDUE, Fold

INTRODUCTION = f"""\
Made by `make docs` from `src/fieldpost/core/kpi.py`, where each has its formula; a test compares the formulas with the
SQL on random tables.

KPIs are numbers computed from the tables at the moment one asks: for all sites together, and for each
(`fieldpost kpis`, `fieldpost kpis --sites`, `GET /api/v1/kpis` and `/api/v1/kpis/sites`). They are shown, and nothing
acts on them. *All* says how the figures of the sites make the one of all together.

The leading node keeps them every {UpkeepOptions().sample_interval_s:g} s, for
{UpkeepOptions().sample_retention_days:g} days: `fieldpost kpis --history KPI`, `GET /api/v1/kpis/history`.

What they are measured by can be set in [settings](settings.md). Unless you say otherwise stuck is what waits for longer
than {WatchOptions().stuck_after_s:g} s, the last interval is {WatchOptions().delivered_window_s:g} s, and overdue
begins after {SWEEPS_UNTIL_OVERDUE} sweeps."""


def render(_root: Path) -> str:
    folds = {Fold.SUM: "the sum", Fold.MAX: "the greatest"}
    rows = [(code(kpi.name), kpi.unit, kpi.help, folds[kpi.fold], code(of_kpi(kpi)[0].name)) for kpi in KPIS]
    return page("KPIs", INTRODUCTION, table(("name", "unit", "what it is", "all", "in Prometheus"), rows))
