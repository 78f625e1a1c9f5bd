"""Migrations of the central store: forward only, never edited after a release."""
