"""The misbehaving upstream: steps, scripts and endings, and the server that plays them."""
