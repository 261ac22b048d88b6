"""Schedules and triggers: runs that start without a person, at a time or by a call, each of them once."""
