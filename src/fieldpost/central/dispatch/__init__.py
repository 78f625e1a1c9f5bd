"""Dispatch: claim due notifications, deliver them through adapters and write the results."""
