"""Reports that devices send: what is agreed upon, and how they are collected."""
