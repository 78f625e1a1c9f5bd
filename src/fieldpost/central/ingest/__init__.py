"""Ingest: store the notifications, telemetry and health reports that arrive at central."""
