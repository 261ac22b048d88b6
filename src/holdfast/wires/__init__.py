"""The dialects of our HTTP API: pure functions from the events of a log to bytes."""
