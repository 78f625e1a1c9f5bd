"""Infrastructure of the console: requests, rendering, forms, charts, compression."""
