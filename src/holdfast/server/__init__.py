"""The HTTP server: the only code that knows requests."""
