"""Parts of `beam-ldp frequency --stream`: windows of files that keep arriving."""
