"""Reports to central over the control connection (telemetry, health), and the commands of central."""
