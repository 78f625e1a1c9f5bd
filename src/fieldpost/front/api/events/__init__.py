"""The API of events, topics, subscriptions, routes and templates."""
