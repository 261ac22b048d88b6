"""The engine as a program embeds it: a few methods, and no server."""
