"""Commands to sites: open intents and reconciliation, sent over the control connections of this node."""
