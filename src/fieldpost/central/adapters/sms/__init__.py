"""Notifications as text messages, through Kannel, Twilio or the HTTP API of a gateway."""
