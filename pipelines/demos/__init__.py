"""Parts of `beam-ldp demo`: simulated people, and what is run and said of them."""

PEOPLE_SEED = 20_240_301  # of the simulated people; their noise is always fresh
