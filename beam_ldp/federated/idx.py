"""Folders of IDX files, as MNIST and what took its form are published: images and their labels.

Four files, gzip or plain: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, and the same with
`t10k` (or `test`) for the public examples; a dot may stand before `idx`, anything before `train`.
A header says how many examples there are and of what shape: sizes are known before a pixel is read.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

__all__ = ["IdxError", "IdxFolder", "holds_idx", "read_idx"]

_NAME = re.compile(r"(?:.*-)?(train|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?")
_UBYTE = 8  # the third byte of a header: what kind of number
_KINDS = {_UBYTE: "unsigned bytes", 9: "signed bytes", 11: "16-bit integers",
          12: "32-bit integers", 13: "floats", 14: "doubles"}  # fmt: skip
_CHUNK = 1 << 24


class IdxError(ValueError):
    """A folder or file that is not as described. The message names files, never what they hold."""


def holds_idx(path: str | Path) -> bool:
    """Whether it is a folder with a file that is named as IDX files are."""
    folder = Path(path)
    return folder.is_dir() and any(_NAME.fullmatch(file.name) for file in folder.iterdir())


@dataclass(frozen=True)
class IdxFolder:
    """What the headers of the four files say.

    Attributes:
        images, labels: the files of examples to learn from.
        test_images, test_labels: those of public ones.
        num_examples, num_test: how many there are.
        shape: of one image: (height, width, channels).
    """

    images: Path
    labels: Path
    test_images: Path
    test_labels: Path
    num_examples: int
    num_test: int
    shape: tuple[int, int, int]

    @classmethod
    def open(cls, path: str | Path) -> IdxFolder:
        """Read the headers.

        Raises:
            IdxError: if a file is missing, there twice or no IDX file of unsigned bytes, or if
                images and labels are not as many, or of two shapes.
        """
        folder = Path(path)
        found: dict[tuple[str, str], list[Path]] = {}
        for file in sorted(folder.iterdir()):
            if named := _NAME.fullmatch(file.name):
                role = "train" if named[1] == "train" else "t10k", named[2]
                found.setdefault(role, []).append(file)
        (images, count, shape), (labels, num_labels, _) = _pair(folder, found, "train")
        (test_images, num_test, test_shape), (test_labels, num_test_labels, _) = _pair(
            folder, found, "t10k"
        )
        for many, first, few, second in (
            (count, images, num_labels, labels),
            (num_test, test_images, num_test_labels, test_labels),
        ):
            if many != few:
                raise IdxError(f"{first} holds {many:,} images, {second.name} {few:,} labels")
        if shape != test_shape:
            raise IdxError(f"{images} holds images of {shape}, {test_images.name} of {test_shape}")
        return cls(images, labels, test_images, test_labels, count, num_test, shape)

    def examples(self, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
        """Those to learn from: float32 pixels in [0, 1], (n, *shape), and int32 labels, (n,).

        Raises:
            IdxError: if a file is not as long as its header says, or a label is no class.
        """
        return self._read(self.images, self.labels, num_classes)

    def test(self, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
        """The public ones, likewise."""
        return self._read(self.test_images, self.test_labels, num_classes)

    def _read(self, images: Path, labels: Path, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
        classes = read_idx(labels).astype(np.int32)
        if bad := int((classes >= num_classes).sum()):
            raise IdxError(
                f"{labels}: {bad:,} of {len(classes):,} labels are no class: they must be below "
                f"{num_classes}"
            )
        pixels = read_idx(images).astype(np.float32)
        pixels /= np.float32(255)
        return pixels.reshape(-1, *self.shape), classes


_Found = tuple[Path, int, tuple[int, int, int]]


def _pair(
    folder: Path, found: dict[tuple[str, str], list[Path]], part: str
) -> tuple[_Found, _Found]:
    """File, length and shape of the images of a part, and of its labels."""
    files = []
    for what, axes in (("images", (3, 4)), ("labels", (1,))):
        named = found.get((part, what), [])
        if not named:
            raise IdxError(
                f"{folder}: no file of {part} {what}, such as {part}-{what}-idx{axes[0]}-ubyte.gz"
            )
        if len(named) > 1:
            raise IdxError(f"{named[0]} and {named[1].name}: one of them must go")
        sizes = _sizes(named[0])
        if len(sizes) not in axes:
            raise IdxError(f"{named[0]} has {len(sizes)} axes, {what} have {axes[0]}")
        if 0 in sizes:
            raise IdxError(f"{named[0]} holds nothing: its sizes are {sizes}")
        shape = (*sizes[1:], 1) if len(sizes) == 3 else sizes[1:]
        files.append((named[0], sizes[0], cast(tuple[int, int, int], shape)))
    return files[0], files[1]


def read_idx(path: str | Path) -> np.ndarray:
    """The numbers of one file, uint8, in the shape that its header says.

    Raises:
        IdxError: if it is no IDX file of unsigned bytes, or longer or shorter than its header says.
    """
    with _opened(Path(path)) as file:
        sizes = _header(file, Path(path))
        wanted, held = math.prod(sizes), bytearray()
        while len(held) <= wanted and (part := _some(file, Path(path))):  # no more than was said
            held += part
    if len(held) != wanted:
        more = "more" if len(held) > wanted else f"{len(held):,}"
        raise IdxError(f"{path}: the header announces {wanted:,} bytes of data, there are {more}")
    return np.frombuffer(held, np.uint8).reshape(sizes)


def _opened(path: Path) -> BinaryIO:
    try:
        return cast(BinaryIO, gzip.open(path) if path.suffix == ".gz" else path.open("rb"))
    except OSError as error:
        raise IdxError(f"{path}: cannot be read ({type(error).__name__})") from None


def _some(file: BinaryIO, path: Path, size: int = _CHUNK) -> bytes:
    try:
        return file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise IdxError(f"{path}: cannot be read ({type(error).__name__})") from None


def _sizes(path: Path) -> tuple[int, ...]:
    with _opened(path) as file:
        return _header(file, path)


def _header(file: BinaryIO, path: Path) -> tuple[int, ...]:
    start = _some(file, path, 4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _KINDS or not start[3]:
        raise IdxError(f"{path} is no IDX file: it does not begin as one")
    if start[2] != _UBYTE:
        raise IdxError(f"{path} holds {_KINDS[start[2]]}; only unsigned bytes are read")
    sizes = _some(file, path, 4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise IdxError(f"{path} ends within its header")
    return struct.unpack(f">{start[3]}I", sizes)
