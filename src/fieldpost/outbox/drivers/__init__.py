"""One module per kind of connection; each is imported when an application passes such a connection."""
