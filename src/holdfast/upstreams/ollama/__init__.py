"""Upstreams that speak Ollama's own API."""
