"""Secrets of channels: sealed with a key from outside the database."""
