"""SQL of notifications: arrivals, claims, attempts, breakers, lists, audit, retention."""
