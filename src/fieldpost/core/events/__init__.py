"""Rules about events: topics, filters, subscriptions and matching."""
