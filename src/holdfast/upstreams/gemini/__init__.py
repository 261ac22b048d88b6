"""Upstreams that speak Google's Gemini API."""
