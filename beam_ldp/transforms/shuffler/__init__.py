"""What cuts the link between reports and people."""
