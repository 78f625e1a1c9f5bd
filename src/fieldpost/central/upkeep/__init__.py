"""Retention, KPI history, and the lease under which one node does these. Imports: core, clock, store.

Dispatching needs no leader: a claim takes due rows and expired ones alike.
"""
