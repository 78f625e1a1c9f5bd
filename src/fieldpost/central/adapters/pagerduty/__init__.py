"""Notifications as events of PagerDuty's Events API v2."""
