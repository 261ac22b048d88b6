"""Stored secrets, such as the keys of providers: their encryption, and its keys."""
