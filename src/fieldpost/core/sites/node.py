"""The nodes of a site: one, or the two of a pair, numbered 0 and 1. A token names the site and its node."""

from collections.abc import Collection
from dataclasses import dataclass

FIRST_NODE = 0
"""The node that a site is added with."""
NODES = (0, 1)


@dataclass(frozen=True, slots=True)
class SiteNode:
    """The sender that a site token proves: a site and one of its nodes."""

    site: str
    node: int = FIRST_NODE


def free_node(nodes: Collection[int]) -> int | None:
    """The number for a further node; None if the site has two."""
    return next((node for node in NODES if node not in nodes), None)
