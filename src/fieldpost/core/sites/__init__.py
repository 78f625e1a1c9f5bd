"""Rules about sites: buffered messages, forwarding, mirrored calls, intents and health."""
