"""SQL of searches and counts."""
