"""How central is reached. Imports: operate, watch, ingest, link, core; never store, adapters, dispatch, upkeep."""
