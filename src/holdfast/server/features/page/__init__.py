"""The browser UI."""
