"""Pages of sites, their cached calls and the requests to them."""
