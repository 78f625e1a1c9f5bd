"""The HTTP kit of the front: one call, its endpoint description, problem details."""
