"""Fixtures of the fault tests: see support/fault_fixtures.py."""

from support.fault_fixtures import cluster, durable_cluster, mail

__all__ = ["cluster", "durable_cluster", "mail"]
