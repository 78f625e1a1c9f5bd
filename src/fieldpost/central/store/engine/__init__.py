"""Access to both databases: store, statements, column types, wake-ups."""
