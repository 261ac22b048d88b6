"""Sharing: links to sessions, and sessions that a group reads or writes together."""
