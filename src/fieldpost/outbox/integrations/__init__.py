"""Migrations for Django and Alembic that carry the tables of the outbox: thin, optional."""
