"""One file per category of message: central (notifications), http (external calls), database (writes)."""
