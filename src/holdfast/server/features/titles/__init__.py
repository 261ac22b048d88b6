"""Titles of chats that a model writes."""
