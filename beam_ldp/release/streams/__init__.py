"""Streams: windows of files that keep arriving, each released once."""
