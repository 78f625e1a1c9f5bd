"""The console: server-rendered HTML first, small scripts second; knows nothing of api."""
