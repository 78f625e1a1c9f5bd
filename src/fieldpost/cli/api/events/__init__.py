"""Commands for events, topics, subscriptions, routes and templates."""
