"""`holdfast config`, `key`, `db`, `backup` and `restore`: for the operator of a server."""
