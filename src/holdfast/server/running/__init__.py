"""The engine of a server, with what its runs need."""
