"""Runs at a site. Imports: core, link, outbound, clock, apsw. Never central."""
