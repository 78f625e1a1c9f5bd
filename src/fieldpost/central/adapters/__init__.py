"""The ways out. One folder each, stateless, no database. Imports: core, clock, own client library."""
