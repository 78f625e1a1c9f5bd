"""SQL of KPIs, nodes, leases and change tokens."""
