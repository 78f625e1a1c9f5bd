"""Views of events: topics, subscriptions, routes, templates, results and deliveries."""
