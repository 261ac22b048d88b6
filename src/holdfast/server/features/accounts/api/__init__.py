"""The calls for accounts: signing in, one's own account, keys, and the people of a server."""
