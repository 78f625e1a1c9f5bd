"""In. Imports: core, link, clock, store."""
