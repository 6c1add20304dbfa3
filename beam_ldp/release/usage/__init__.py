"""What each kind of question takes at every door, and its help. Nothing here imports Beam."""
