"""The configuration of the Django application."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):  # type: ignore[misc]
    name = "fieldpost.outbox.integrations.django"
    label = "fieldpost_outbox"
    verbose_name = "Event outbox"
