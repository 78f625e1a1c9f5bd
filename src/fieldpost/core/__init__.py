"""Types and rules. Pure: no I/O, time and randomness are arguments. Imports the standard library only."""
