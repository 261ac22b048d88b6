"""`python -m holdfast`."""

from .cli import main

main()
