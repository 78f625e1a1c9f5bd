"""Views for people, read only: KPIs, metrics, health. Imports: core, clock, store."""
