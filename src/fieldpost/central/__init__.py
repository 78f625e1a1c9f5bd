"""Runs at the centre. Five rooms that do not know each other, over two that do not either."""
