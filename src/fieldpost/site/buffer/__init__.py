"""The buffer of a site: all of its SQL on `buffer.db`."""
