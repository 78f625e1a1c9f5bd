"""SQLAlchemy and Django: thin, optional."""
