"""The two nodes of a site: the exchange of their changes."""
