"""SQL of users, tokens and logins."""
