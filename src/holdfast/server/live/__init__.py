"""The settings and providers of a running server."""
