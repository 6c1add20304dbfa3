"""What travels between the stages, and what all of them share."""
