"""Filters, search tokens and error fingerprints: how people find notifications and audit entries."""
