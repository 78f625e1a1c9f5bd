"""One file per process: central, site and relay wire backend together. Imports: everything below."""
