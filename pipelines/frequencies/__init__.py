"""Parts of `beam-ldp frequency`: one list, several questions, groups, numbers."""
