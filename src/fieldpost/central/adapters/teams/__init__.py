"""Notifications as Adaptive Cards through Workflows of Microsoft Teams."""
