"""What a large local epsilon still hides: how well a value can be guessed from its report."""
