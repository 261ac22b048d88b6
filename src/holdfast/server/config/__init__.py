"""Settings: where they come from, and what is made of them."""
