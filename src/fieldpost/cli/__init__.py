"""The command line: one module per noun. Imports: run, site, demo; otherwise talks to the API."""
