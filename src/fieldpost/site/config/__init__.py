"""Configuration of a site: `site.toml`, options, definitions of systems and databases, secret files."""
