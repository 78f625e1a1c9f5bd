"""Notifications as messages to topics of an ntfy server."""
