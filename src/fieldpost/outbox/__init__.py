"""Runs in your application. Imports: core, link, clock; works on the connection it is given."""
