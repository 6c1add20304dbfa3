"""Commands of this room: `beam-ldp ab-test` and `beam-ldp bandit`."""
