"""Lists of models, runs and sessions, and what is done with one of them."""
