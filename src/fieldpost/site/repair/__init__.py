"""Checks and repairs of a buffer: doctor, export, import, compact, salvage."""
