"""Carriers take messages out of the site: one module per category and driver."""
