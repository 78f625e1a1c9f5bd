"""Migrations of the Django application."""
