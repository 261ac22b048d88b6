"""Compare: one prompt to several models, side by side."""
