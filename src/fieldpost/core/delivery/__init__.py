"""Delivery rules: paths, attempts and their outcomes, retries, breakers, holds and slots."""
