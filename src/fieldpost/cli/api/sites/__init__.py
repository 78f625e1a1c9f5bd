"""Commands for sites, their calls and queries."""
