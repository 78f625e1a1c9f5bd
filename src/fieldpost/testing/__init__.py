"""What adapter and app authors need: a contract for adapters, a manual clock, servers that misbehave on demand."""
