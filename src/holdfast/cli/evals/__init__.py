"""`holdfast compare` and its reports."""
