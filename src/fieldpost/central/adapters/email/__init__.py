"""Notifications by SMTP: the adapter, how a mail is composed, and how a reply becomes an outcome."""
