"""Central, sites, mail catcher and scripts in one terminal."""
