"""Runnable programs and the command line: each parses options, wires stages, runs and reports.

A program is a module here, named as its command; its parts are a package beside it:

| Package | What is in it |
|---|---|
| `inputs` | from files to blocks of rows, and the public lists that go with them |
| `jobs` | how a Beam pipeline is run, watched, and gives its results back to the launcher |
| `records` | what a release costs and says of itself: gates, price, charge, record, statement |
| `views` | what people see: tables, pictures, plans, prices, the terminal |
| `frequencies`, `means`, `streams`, `training`, `devices` | parts of commands |

All programs go through `options` (flags), `settings` (what they mean), `question` (before and
after the data), `run` (plan, run, gates, price, record, files, log, show) and `outputs` (whole or
absent).
"""

import logging


def _wanted(record: logging.LogRecord) -> bool:
    """Beam warns at import about cloud clients that nobody asked for."""
    return "apitools not found" not in str(record.msg)


logging.getLogger().addFilter(_wanted)
# What local workers say when they start comes back through this one, as warnings.
logging.getLogger("apache_beam.runners.portability.local_job_service").setLevel(logging.ERROR)
# Matplotlib warns of folders of this machine, where it cannot keep its list of fonts.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
