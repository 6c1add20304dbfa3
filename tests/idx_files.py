"""IDX files that tests write."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np


def idx_bytes(values: np.ndarray, kind: int = 8) -> bytes:
    """Unsigned bytes as an IDX file holds them."""
    header = bytes([0, 0, kind, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype(np.uint8).tobytes()


def write_idx(path: Path, values: np.ndarray) -> None:
    """A file; compressed where its name ends in `.gz`."""
    raw = idx_bytes(values)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def images(count: int, side: int = 8, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Images of which the label can be told: a bright row, number `label % side`."""
    labels = np.arange(count) % classes
    pixels = np.random.default_rng(count).integers(0, 60, (count, side, side))
    pixels[np.arange(count), labels % side] += 150
    pixels[0, 0, :2] = 0, 255
    return pixels.astype(np.uint8), labels.astype(np.uint8)


def write_folder(folder: Path, count: int = 60, test: int = 20, ending: str = "", **how) -> Path:
    """A folder of the four files, of so many images."""
    folder.mkdir(exist_ok=True)
    for part, number in (("train", count), ("t10k", test)):
        pixels, labels = images(number, **how)
        write_idx(folder / f"{part}-images-idx3-ubyte{ending}", pixels)
        write_idx(folder / f"{part}-labels-idx1-ubyte{ending}", labels)
    return folder
