"""Pages of accounts, logins, users and API tokens."""
