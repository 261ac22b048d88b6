"""The runs of a session: their order, and who watches them."""
