"""Parts of `beam-ldp plan` and `privacy`, which read no data."""
