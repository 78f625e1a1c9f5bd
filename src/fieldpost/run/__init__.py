"""One file per process: central, site and relay wire rooms together. Imports: everything below."""
