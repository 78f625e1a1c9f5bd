"""Serves the link: the WebSockets and POST endpoints that sites call."""
