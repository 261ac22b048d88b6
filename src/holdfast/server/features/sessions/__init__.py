"""Our own HTTP API."""
