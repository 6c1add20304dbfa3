"""Parts of `beam-ldp mean` and `user-mean`."""
