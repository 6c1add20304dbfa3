"""The transform against its matrix, on every path of the kernel."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.linalg import hadamard

from beam_ldp.randomizers.walsh_hadamard import (
    _CACHED,
    _transform,
    _transform_few,
    hadamard_matrix,
    walsh_hadamard,
    walsh_hadamard_in_place,
)
from beam_ldp.randomizers.words import odd_parity

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("order", [1 << i for i in range(9)])
def test_matrix(order):
    matrix = hadamard_matrix(order)
    np.testing.assert_array_equal(matrix, hadamard(order))
    np.testing.assert_array_equal(matrix @ matrix, order * np.eye(order))
    rows, columns = np.indices((order, order)).reshape(2, -1)
    signs = [-1 if odd_parity(r & c) else 1 for r, c in zip(rows, columns)]
    np.testing.assert_array_equal(matrix.ravel(), signs)


@pytest.mark.parametrize("levels", [1, 5, 11, 12, 13, 14, 15])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_long_rows(levels, dtype):
    """Both sides of the cache-sized block, odd and even numbers of levels."""
    rng = np.random.default_rng(levels)
    length = 1 << levels
    values = rng.integers(-(10**6), 10**6, (3, length)).astype(dtype)
    result = walsh_hadamard(values)
    for column in (0, 1, length // 2, length - 1, *rng.integers(0, length, 4).tolist()):
        sign = np.array([-1 if odd_parity(r & column) else 1 for r in range(length)])
        np.testing.assert_array_equal(result[:, column], values @ sign.astype(dtype))
    np.testing.assert_array_equal(walsh_hadamard(result), values * length)


@pytest.mark.parametrize("levels", range(15))
def test_few_values_without_numba_give_the_same_bits(levels):
    rng = np.random.default_rng(levels)
    for values in (rng.normal(size=(3, 1 << levels)), rng.integers(-99, 99, (1, 1 << levels))):
        compiled, plain = values.copy(), values.copy()
        _transform(compiled, _CACHED)
        _transform_few(plain)
        assert compiled.tobytes() == plain.tobytes()


def test_a_program_that_has_not_loaded_numba_does_not_for_few_values(monkeypatch):
    values = np.random.default_rng(1).normal(size=(2, 1024))
    expected = walsh_hadamard(values)
    with monkeypatch.context() as patched:
        patched.delitem(sys.modules, "numba", raising=False)
        patched.setattr(f"{walsh_hadamard.__module__}._transform", None)
        assert walsh_hadamard(values).tobytes() == expected.tobytes()


def test_leading_axes_copies_and_dtypes():
    values = np.arange(2 * 3 * 8).reshape(2, 3, 8)
    result = walsh_hadamard(values)
    assert result.shape == values.shape and result.dtype == np.int64
    np.testing.assert_array_equal(result, values @ hadamard(8))
    np.testing.assert_array_equal(values, np.arange(48).reshape(2, 3, 8))
    np.testing.assert_array_equal(walsh_hadamard(values.T.copy().T), result)
    assert walsh_hadamard(np.float32([1, 2])).dtype == np.float64
    assert walsh_hadamard([True, True]).tolist() == [2, 0]
    assert walsh_hadamard(np.zeros((0, 4))).shape == (0, 4)
    large = np.array([2**61, 1])
    assert walsh_hadamard(large).tolist() == [2**61 + 1, 2**61 - 1]


def test_refuses_what_it_would_get_wrong():
    for shape in ((3,), (2, 6), (2, 0), ()):
        with pytest.raises(ValueError, match="power of two"):
            walsh_hadamard(np.zeros(shape))
    for array in (np.zeros(4, dtype=np.int32), np.zeros((4, 4)).T[:, :2], np.zeros(8)[::2]):
        with pytest.raises(ValueError, match="C-contiguous int64 or float64"):
            walsh_hadamard_in_place(array)
