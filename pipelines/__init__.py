"""Runnable programs and the command line: each parses options, wires stages, runs and reports."""

import logging


def _wanted(record: logging.LogRecord) -> bool:
    """Beam warns at import about cloud clients that nobody asked for."""
    return "apitools not found" not in str(record.msg)


logging.getLogger().addFilter(_wanted)
# What local workers say when they start comes back through this one, as warnings.
logging.getLogger("apache_beam.runners.portability.local_job_service").setLevel(logging.ERROR)
