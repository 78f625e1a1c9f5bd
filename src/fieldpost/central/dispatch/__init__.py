"""Out. Imports: core, clock, store, adapters."""
