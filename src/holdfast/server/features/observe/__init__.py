"""What operators see: health, nodes, metrics and traces."""
