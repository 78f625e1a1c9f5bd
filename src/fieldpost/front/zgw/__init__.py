"""The ZGW Notificaties API 1.0.1 under `/notificaties/api/v1`, on top of topics, subscriptions and events."""
