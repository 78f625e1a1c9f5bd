"""The Dutch standard "Notificaties API voor Zaakgericht Werken": names, matching, notifications and tokens."""
