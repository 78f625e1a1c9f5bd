"""The protocol between a sender (site or app) and central. Imports: core, clock, msgspec, aiohttp."""
