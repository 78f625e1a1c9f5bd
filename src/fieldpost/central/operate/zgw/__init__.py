"""The ZGW API: its clients, kanalen and abonnementen."""
