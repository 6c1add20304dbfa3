"""What `beam-ldp bandit` does for people who are really there: its service, batch by batch."""
