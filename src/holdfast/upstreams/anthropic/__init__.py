"""Upstreams with Anthropic's Messages API."""
