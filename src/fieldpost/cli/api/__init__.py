"""Commands that call the API of a central, one module per noun."""
