"""Upstreams that speak OpenAI's Responses API."""
