"""Runnable programs and the command line: each parses options, wires stages, runs and reports."""
