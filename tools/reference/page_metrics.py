"""metrics.md: every metric that a node exposes, from the collectors themselves."""

from collections.abc import Iterator
from pathlib import Path

from markdown import code, page, table
from prometheus_client.metrics import MetricWrapperBase

from fieldpost.central.watch.exposition import TOLD
from fieldpost.central.watch.metrics import Metrics

INTRODUCTION = """\
Made by `make docs` from the metrics themselves.

`GET /metrics` of each node answers in the text format of Prometheus, to a program with an API token (role viewer):

    scrape_configs:
      - job_name: fieldpost
        authorization: {credentials_file: /etc/prometheus/fieldpost-token}
        static_configs:
          - targets: [central-1.example.org:8025, central-2.example.org:8025]

## Of the node that is asked

Counted since its process started, with the usual `process_…` metrics beside them."""

OF_CENTRE = """\
## Of the whole centre

Read from the store at each scrape, hence the same at every node: take them from one, or by `max`. When the store
cannot be read, `fieldpost_store_up` is 0 and the others are missing. What begins with `fieldpost_site_` is of one
site."""


def render(_root: Path) -> str:
    of_node = [(code(name), kind, _labels(labels), said) for name, kind, labels, said in sorted(_of_node())]
    of_centre = [(code(told.name), _labels(told.labels), told.help) for told in TOLD]
    return page(
        "Metrics",
        INTRODUCTION,
        table(("name", "kind", "labels", "what it is"), of_node),
        OF_CENTRE,
        table(("name", "labels", "what it is"), of_centre),
    )


def _of_node() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    for collector in vars(Metrics()).values():
        if isinstance(collector, MetricWrapperBase):
            [family] = collector.describe()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield name, family.type, tuple(collector._labelnames), family.documentation


def _labels(names: tuple[str, ...]) -> str:
    return ", ".join(code(name) for name in names)
