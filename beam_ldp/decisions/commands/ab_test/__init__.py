"""Parts of `beam-ldp ab-test`."""
