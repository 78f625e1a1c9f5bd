"""The site pair: rules for two nodes of one site, without I/O."""
