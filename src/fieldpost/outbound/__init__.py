"""The guarded HTTP client: checks and pins addresses, no redirects, total deadline, bounded response."""
