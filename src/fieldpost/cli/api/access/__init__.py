"""Commands for logging in, users, tokens and ZGW clients."""
