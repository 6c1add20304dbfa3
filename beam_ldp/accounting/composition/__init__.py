"""Many releases: what each event costs at every order, and what they cost together."""
