"""The API of users, sessions, tokens and ZGW clients."""
