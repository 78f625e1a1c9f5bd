"""The HTTP API: the whole of it as one table of routes, one module per resource."""
