"""The kinds of rows."""

GENESIS, DATASET, RENAME, BUDGET, QUOTA = "genesis", "dataset", "rename", "budget", "quota"
RESERVE, RESUME, SETTLE, ABANDON = "reserve", "resume", "settle", "abandon"
BEGIN = "begin"  # a start of a training, or one more of its rounds: how many have begun
REPLACE = "replace"  # a second publication: one event for both, in place of the first
CHECKPOINT, TIME = "checkpoint", "time"
PEOPLE, ACCEPT = "people", "accept"
CHARGES = (RESERVE, RESUME, BEGIN, SETTLE, ABANDON, REPLACE)  # what a run's rows can be
KINDS = (GENESIS, DATASET, RENAME, BUDGET, QUOTA, *CHARGES, CHECKPOINT, TIME, PEOPLE, ACCEPT)
