"""What a statement says of shares that nothing but a trusted shuffler protects."""

from __future__ import annotations

from typing import Any

from beam_ldp.pipelines.records.forging import mechanism_of
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.mean.split_and_mix import SplitAndMixMean


def is_in_shares(record: Any) -> bool:
    """Whether what people sent protects nobody by itself."""
    return bool(record.mechanism.get("mechanism") == SplitAndMixMean.__name__)


def words_in_shares(record: Any, together: str) -> dict[str, Any]:
    """What the statement says differently, as arguments of `Words`.

    Args:
        record: of a mean in shares.
        together: how shares that left the shuffler were permuted.
    """
    count = f"{record.messages_per_user:,}"
    mechanism = mechanism_of(record.mechanism)
    assert isinstance(mechanism, SplitAndMixMean)
    wraps = mechanism.wrap_probability(record.num_reports)
    most = mechanism.longest_sum / max(1, record.num_reports)
    return dict(
        first="**Nobody here is protected unless the shuffler, or whoever adds up the shares, is "
        "trusted, and a single forged envelope can move the mean anywhere.** There is no local "
        "epsilon (it is infinite): whoever sees the shares of one person, and that they belong "
        "together, adds them up and reads the vector almost exactly. It was declared that the "
        "shuffler may be trusted (`--trust-shuffler`).",
        whole="all shares of a person",
        whole_briefly="all shares of a person",
        itself="all shares of a person",
        shuffler=f"The shufflers**, one for each of the {count} columns of shares, see shares and "
        "whose they are. Here all of them are the workers of one runner, which can add up the "
        "shares of a person: against it, nothing protects.",
        left=(
            f"Only sums modulo 2^{mechanism.modulus_bits} over all people left the shufflers: no "
            "share did."
            if record.output == "statistic"
            else "Shares left the shufflers, each column permuted independently, so that nothing "
            f"links those of a person but their sum over all people, {together}"
        ),
        credit="Against them the central epsilon holds, if every column is permuted independently "
        "(or only sums are shown) and no shuffler colludes, and if as many people as are counted "
        "on were honest: only their noise protects.",
        counted=f"{record.num_reports:,} envelopes arrived complete; "
        f"{100 * record.honest_fraction:g} % of them are declared honest (`--honest-fraction`): "
        "they added their noise as the protocol says, and tell nobody their shares. The privacy "
        f"cost counts {record.honest_reports:,}; below {record.min_reports:,} arrivals nothing "
        "would have been released, since the noise of those who stay away is missing",
        promised="epsilon and delta, draws from tables included",
        noise="* noise: fresh from the operating system's generator. If the engine repeated work, "
        "the shuffler saw other shares of the same people too, which tell nothing that the first "
        "did not",
        weak="",
        notes=(
            f"an envelope of {count} shares counts whole or not at all: one share that is lost "
            "alone, or forged, moves all of the mean by a random length, without a sign of it, and "
            "no check of norms is possible",
            "there is no bound on what one forged envelope does but that of the sums: it may set "
            f"the mean to anything of a length up to {readable(most)}, where honest vectors have "
            f"at most {readable(mechanism.radius)}. Every number below "
            f"2^{mechanism.modulus_bits} may be a share, so that nothing in an envelope is "
            "impossible but its form; a mean outside of what honest vectors and noise explain is "
            "warned of",
            "that a sum wraps around, which spoils the mean and never the privacy, has a chance of "
            f"{wraps:.1e} at most",
        ),
    )
