"""Concurrency of the engine and the server: background and owned tasks, retries, watchers."""
