"""The webhook adapter: signed HTTP requests to the receivers of subscriptions and lists."""
