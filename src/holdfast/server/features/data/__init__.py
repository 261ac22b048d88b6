"""People's own data: exported as one archive, imported, or deleted."""
