"""Fixtures of the fault tests: see support/fault_fixtures.py."""

from support.fault_fixtures import clock, cluster, durable_cluster, mail

__all__ = ["clock", "cluster", "durable_cluster", "mail"]
