"""`holdfast chat` in a terminal."""
