"""SQL of sites: enrolment, mirror of cached calls, intents, health."""
