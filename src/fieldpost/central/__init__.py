"""Runs at the centre. The packages for its tasks are independent of each other and use the store and the adapters."""
