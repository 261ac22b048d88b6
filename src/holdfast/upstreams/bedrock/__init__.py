"""Upstreams that speak AWS Bedrock's Converse API."""
