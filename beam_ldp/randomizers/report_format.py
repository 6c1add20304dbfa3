"""What a report is: its form in memory, its bits in a stream, and which can have been sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from beam_ldp.randomizers.bits import (
    join_rows,
    pack_uints,
    padding_is_zero,
    split_rows,
    unpack_uints,
)
from beam_ldp.randomizers.words import bits_for, smallest_uint


class ReportFormat(ABC):
    """The reports of one mechanism: how they travel, and what is refused of what arrives."""

    @property
    @abstractmethod
    def bits_per_report(self) -> int:
        """Bits of everything sent, public rows, seeds and tags included."""

    @property
    @abstractmethod
    def report_dtype(self) -> np.dtype[Any]:
        """Dtype of a report in memory: the smallest that holds it."""

    @property
    def report_shape(self) -> tuple[int, ...]:
        """Shape of one report in memory."""
        return ()

    # How it travels ----------------------------------------------------------------------

    def pack(self, reports: np.ndarray) -> bytes:
        """The reports as a bit stream of `bits_per_report` bits each, zero-padded to a byte.

        Each report's own bits stand together: a stream is nothing but its reports, end to end.
        """
        return pack_uints(reports, self.bits_per_report)

    def unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        """Inverse of `pack`.

        Raises:
            ValueError: if the length does not fit or a report is not one that the mechanism sends.
        """
        return self._check_reports(self._unpack(data, num_reports))

    def unpack_possible(self, data: bytes, num_reports: int) -> tuple[np.ndarray, np.ndarray]:
        """As `unpack`, with what cannot have been sent marked instead of refused.

        Returns:
            The reports and `possible(reports)`; of an impossible one only that it is one is known.

        Raises:
            ValueError: if the length does not fit or the padding is not zero.
        """
        reports = self._unpack(data, num_reports)
        return reports, self._possible(reports)

    def pack_each(self, reports: np.ndarray) -> np.ndarray:
        """Each report in whole bytes of its own, zero-padded: uint8 `(n, ceil(bits / 8))`.

        Row i is `pack` of report i alone.
        """
        bits = self.bits_per_report
        return split_rows(self.pack(reports), bits, len(reports), little=self._low_bits_first)

    def unpack_each(self, payload: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inverse of `pack_each`.

        Args:
            payload: uint8 `(n, ceil(bits / 8))`.

        Returns:
            The reports, and which of them a device that follows the mechanism can have sent, the
            zeros of their padding included: bool `(n,)`.

        Raises:
            ValueError: if the payload has another shape or dtype.
        """
        bits, little = self.bits_per_report, self._low_bits_first
        width = -(-bits // 8)
        if payload.ndim != 2 or payload.shape[1] != width or payload.dtype != np.uint8:
            raise ValueError(f"payload must be uint8 of shape (n, {width})")
        stream = join_rows(payload, bits, little=little)
        reports, possible = self.unpack_possible(stream, len(payload))
        return reports, possible & padding_is_zero(payload, bits, little=little)

    @property
    def _low_bits_first(self) -> bool:
        """Whether the bit stream begins with the least significant bit of each byte."""
        return False

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        """What `pack` was given, as far as the length and the padding tell."""
        return unpack_uints(data, self.bits_per_report, num_reports).astype(self.report_dtype)

    # What can have been sent -------------------------------------------------------------

    def possible(self, reports: np.ndarray) -> np.ndarray:
        """Which reports a device that follows the mechanism can have sent: bool `(n,)`.

        Whoever can send can send any of them, whatever their own value; what is refused here is
        what could move an estimate further than a liar's report can. Real-valued reports are
        judged up to the rounding of their coordinates; the docstrings of the mechanisms say how
        far one report can pull an estimate.

        Args:
            reports: integers, `(n,) + report_shape`.

        Raises:
            ValueError: if the array has another shape, or does not hold integers.
        """
        reports = np.asarray(reports)
        if reports.shape[1:] != self.report_shape or not reports.ndim:
            shape = ", ".join(["n", *map(str, self.report_shape)])
            raise ValueError(f"reports must have shape ({shape}), got {reports.shape}")
        if reports.dtype.kind not in "iu":
            raise ValueError(f"reports must be integers, got {reports.dtype}")
        if reports.dtype == self.report_dtype:
            return self._possible(reports)
        limits = np.iinfo(self.report_dtype)
        fits = (reports >= limits.min) & (reports <= limits.max)
        whole = fits.all(axis=tuple(range(1, fits.ndim)))
        return np.asarray(whole & self._possible(reports.astype(self.report_dtype)))

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        """`possible`, for reports of the right shape and dtype: here, one number each that fits the
        declared bits. What a mechanism leaves out of those, or arranges otherwise, it says."""
        if self.report_shape:
            raise NotImplementedError(f"{type(self).__name__} does not say what it can send")
        return below(reports, 1 << self.bits_per_report)

    @property
    def _possible_reports(self) -> str:
        """What reports must be, to stand in an error."""
        return f"be such as {type(self).__name__} can send"

    def _check_reports(self, reports: np.ndarray) -> np.ndarray:
        """The reports in their own dtype; a ValueError where one of them cannot have been sent."""
        if not self.possible(reports).all():
            raise ValueError(f"reports must {self._possible_reports}")
        return np.asarray(reports).astype(self.report_dtype, copy=False)


class NumberedReports(ReportFormat):
    """Reports that are one number each: one of the `_num_reports` first ones."""

    @property
    @abstractmethod
    def _num_reports(self) -> int:
        """Different reports."""

    @property
    def bits_per_report(self) -> int:
        return bits_for(self._num_reports)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return smallest_uint(self._num_reports)

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        return below(reports, self._num_reports)

    @property
    def _possible_reports(self) -> str:
        return f"lie in [0, {self._num_reports})"


def below(reports: np.ndarray, num_outputs: int) -> np.ndarray:
    """Which unsigned reports are among the `num_outputs` first ones: bool, same shape."""
    if num_outputs > np.iinfo(reports.dtype).max:
        return np.ones(reports.shape, dtype=np.bool_)
    return np.asarray(reports < reports.dtype.type(num_outputs))


def check_below(reports: np.ndarray, num_outputs: int) -> np.ndarray:
    """The reports, or a ValueError where one is not among the `num_outputs` possible ones."""
    if reports.size and reports.max() >= num_outputs:
        raise ValueError(f"reports must lie in [0, {num_outputs})")
    return reports
