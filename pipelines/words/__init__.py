"""Parts of `beam-ldp heavy-hitters`."""
