"""Commands that work on this machine."""
