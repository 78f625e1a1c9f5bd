"""Notifications to any service that Apprise reaches over HTTP."""
