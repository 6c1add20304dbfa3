"""What people sent and how it was shuffled: inert records of what ran, not of what it costs.

Prices are computed from these alone. Each is a privacy event too (`beam_ldp.accounting.events`), of
a class derived from the one here, once an event is asked for: `dp_accounting` takes a second to
load. They hold numbers and tuples only, because dp-accounting 0.6 takes strings apart when it turns
an event into a named tuple; text travels as code points.
"""

from beam_ldp.accounting.reports.packing import (
    PackedPair,
    pack_pair,
    pack_pairs,
    unpack_pair,
)
from beam_ldp.accounting.reports.sampled import (
    POISSON,
    SELF,
    SHUFFLED_EPOCHS,
    WITHOUT_REPLACEMENT,
    SampledReports,
)
from beam_ldp.accounting.reports.shuffled import (
    UNKNOWN_GROUPS,
    ComposedReports,
    LocalReports,
    ShuffledMessages,
    ShuffledReports,
    crowd_of,
    failure_of,
    hidden_users,
    honest_part,
    with_crowd,
    with_reports,
)

__all__ = [
    "POISSON",
    "SELF",
    "SHUFFLED_EPOCHS",
    "UNKNOWN_GROUPS",
    "WITHOUT_REPLACEMENT",
    "ComposedReports",
    "LocalReports",
    "PackedPair",
    "SampledReports",
    "ShuffledMessages",
    "ShuffledReports",
    "crowd_of",
    "failure_of",
    "hidden_users",
    "honest_part",
    "pack_pair",
    "pack_pairs",
    "unpack_pair",
    "with_crowd",
    "with_reports",
]
