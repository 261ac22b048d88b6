"""The built-in model, in a process of its own."""
