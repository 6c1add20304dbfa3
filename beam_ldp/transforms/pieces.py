"""Reports as they cross the wire between workers: packed, where that is shorter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.transforms import block_coder
from beam_ldp.transforms.block_coder import BYTES, FLAG, INTEGER
from beam_ldp.transforms.mechanisms import report_bytes

WORTH_PACKING = 0.8  # of the bytes in memory; packing and unpacking take some nanoseconds


@dataclass(frozen=True, eq=False)
class ReportPiece:
    """Some reports of one shard, on their way to it.

    Attributes:
        data: the reports, as `PieceFormat` writes them.
        num_reports: how many.
        mechanism_digest: of the mechanism that made them.
        simulated: whether they were drawn with a seed.
    """

    data: bytes
    num_reports: int
    mechanism_digest: bytes
    simulated: bool

    def __len__(self) -> int:
        return self.num_reports


block_coder.register(
    ReportPiece, data=BYTES, num_reports=INTEGER, mechanism_digest=BYTES, simulated=FLAG
)


class PieceFormat:
    """Writes the reports of one mechanism to bytes and reads them back, exactly.

    Integers are written in the wire format of the mechanism if that saves a fifth of the bytes;
    what is real-valued, or dense in memory already, is written as it is.
    """

    def __init__(self, randomizer: LocalRandomizer) -> None:
        self._randomizer = randomizer
        self._digest = randomizer.config_digest()
        in_memory = 8 * report_bytes(randomizer)
        self.packed = (
            randomizer.report_dtype.kind in "iub"
            and randomizer.bits_per_report <= WORTH_PACKING * in_memory
        )

    @property
    def bits_per_report(self) -> int:
        """Bits that cross the wire for one report."""
        if self.packed:
            return self._randomizer.bits_per_report
        return 8 * report_bytes(self._randomizer)

    def write(self, reports: np.ndarray, simulated: bool) -> ReportPiece:
        """The piece of these reports."""
        if self.packed:
            data = self._randomizer.pack(reports)
        else:
            data = np.ascontiguousarray(reports, self._randomizer.report_dtype).tobytes()
        return ReportPiece(data, len(reports), self._digest, simulated)

    def read(self, piece: ReportPiece) -> np.ndarray:
        """The reports of a piece."""
        if self.packed:
            return self._randomizer.unpack(piece.data, piece.num_reports)
        flat = np.frombuffer(piece.data, self._randomizer.report_dtype)
        return flat.reshape(piece.num_reports, *self._randomizer.report_shape)
