"""The longer parts of `beam-ldp demo`."""
