"""Access control: users, logins, tokens, passwords, OIDC; roles and the audit trail of actions."""
