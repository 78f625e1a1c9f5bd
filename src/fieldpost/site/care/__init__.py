"""THE CARE OF A SITE'S BUFFER: is it well, messages out and in, and saving what a bad disk left."""
