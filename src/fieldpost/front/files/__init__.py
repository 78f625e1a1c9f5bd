"""Import and export files: CSV and JSON."""
