"""What is done after an answer has broken off: another leg, joined at the seam, or the end."""
