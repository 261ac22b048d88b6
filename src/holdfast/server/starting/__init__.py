"""The start of runs: the only way from a request to the engine."""
