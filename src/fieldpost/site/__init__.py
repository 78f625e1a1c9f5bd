"""Runs at a site. Imports: core, link, outbound, clock, apsw (asyncpg in one carrier). Never central."""
