"""Upstreams that speak OpenAI's chat completions."""
