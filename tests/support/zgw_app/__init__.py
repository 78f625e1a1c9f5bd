"""A small Django project that uses the libraries of the ZGW APIs as real applications do; runs in .venv/zgw."""
