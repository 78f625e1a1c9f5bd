"""The schema: tables, row conversion and migrations."""
