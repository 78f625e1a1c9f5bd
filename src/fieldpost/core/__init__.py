"""The words and the rules. Pure values and functions; time and chance come in as arguments. Imports: stdlib, no I/O."""
