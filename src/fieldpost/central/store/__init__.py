"""All central SQL. One module per table, core types in and out. Imports: core, clock, sqlalchemy."""
