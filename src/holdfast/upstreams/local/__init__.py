"""The embedded model, in a process of its own."""
