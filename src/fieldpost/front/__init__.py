"""The HTTP front end of central: API, console and link."""
