"""Text messages: phone numbers and segments."""
