"""What a run says: how it is checked, told apart, numbered, kept together, and what its end amounts to. Pure."""
