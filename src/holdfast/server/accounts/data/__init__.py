"""People's own data: all of it in one archive, brought in elsewhere, or deleted."""
