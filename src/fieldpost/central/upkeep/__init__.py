"""Work that one node does for all: retention, KPI history and indexing, under the leader's lease.

Dispatching needs no leader: claims cover due and expired notifications alike.
"""
