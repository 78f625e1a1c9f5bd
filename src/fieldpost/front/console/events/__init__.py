"""Pages of events and topics."""
