"""What people see, read only: KPIs, metrics, health. Imports: core, clock, store."""
