"""SQL of events: topics, subscriptions, recorded events and their fan-out."""
