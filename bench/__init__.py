"""Measures Holdfast against the same load sent straight to the upstream and through nginx."""
