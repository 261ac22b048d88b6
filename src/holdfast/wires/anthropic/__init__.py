"""Anthropic's Messages API for clients."""
