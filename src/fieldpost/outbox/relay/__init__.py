"""The relay: publishes the rows of an outbox to central and follows their results. See `relay.py`."""
