"""Commands that list models, runs and sessions, and act on one of them."""
