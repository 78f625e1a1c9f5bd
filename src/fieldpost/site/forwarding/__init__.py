"""Forwarding: take due messages from the buffer, hand them to a carrier, settle the result."""
