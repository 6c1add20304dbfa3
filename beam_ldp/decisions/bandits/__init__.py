"""Linear bandits whose learner never holds who liked what: one report a person, in batches."""
