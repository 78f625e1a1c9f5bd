"""What people do: one module per noun; each act checked and audited.

Imports: core, link, clock, store, adapters.
"""
