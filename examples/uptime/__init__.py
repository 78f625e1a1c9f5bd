"""An uptime and certificate monitor that notifies through Fieldpost."""
