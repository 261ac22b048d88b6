"""Secrets that the server keeps, such as the keys of providers: sealed, and where the sealing keys come from."""
