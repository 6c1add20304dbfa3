"""Records of rounds, as an adapter leaves them in a state."""

from __future__ import annotations

import numpy as np

from beam_ldp.federated.record import RoundConfig, RoundsRecord


def record(mechanisms, rounds, values=1, sampling=None, seeded=False, least_left=0):
    configs = tuple(m.to_config() for m in mechanisms)
    config = RoundConfig(configs, values, sampling, seeded, least_left=least_left).to_json()
    return RoundsRecord(config.encode(), np.array(rounds, np.int64).reshape(-1, 2))
