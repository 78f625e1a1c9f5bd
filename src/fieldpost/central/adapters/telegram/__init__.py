"""Notifications as messages of a Telegram bot."""
