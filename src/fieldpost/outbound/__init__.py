"""The one guarded HTTP client: judges addresses, pins them, no redirects, total deadline, bounded answer.

Imports: core, clock, aiohttp.
"""
