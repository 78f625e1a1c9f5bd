"""Requests to central: calls, serving of route tables, problem responses."""
