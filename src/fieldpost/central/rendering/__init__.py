"""Rendering of templates in child processes, and the text of notifications that routes make."""
