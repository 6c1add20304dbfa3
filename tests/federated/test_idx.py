"""Folders of IDX files: what is read, and everything that can be wrong with them."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from beam_ldp.federated.idx import IdxError, IdxFolder, holds_idx, read_idx
from tests.idx_files import idx_bytes, images, write_folder, write_idx

pytestmark = pytest.mark.exact
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_what_was_written_is_read(tmp_path, ending):
    folder = write_folder(tmp_path / "few", 7, 3, ending, side=5)
    found = IdxFolder.open(folder)
    assert holds_idx(folder) and not holds_idx(tmp_path)
    assert (found.num_examples, found.num_test, found.shape) == (7, 3, (5, 5, 1))
    pixels, labels = found.examples(10)
    raw, classes = images(7, 5)
    assert pixels.dtype == np.float32 and labels.dtype == np.int32
    np.testing.assert_allclose(pixels[..., 0], raw / 255.0, rtol=1e-7)
    assert pixels.min() == 0 and pixels.max() == 1
    np.testing.assert_array_equal(labels, classes)
    assert len(found.test(10)[1]) == 3


def test_other_spellings_and_colours(tmp_path):
    """EMNIST's prefix, "test" for "t10k", a dot before "idx"; three channels."""
    for part in ("emnist-digits-train", "emnist-digits-test"):
        write_idx(tmp_path / f"{part}-images.idx4-ubyte.gz", np.full((2, 4, 5, 3), 9, np.uint8))
        write_idx(tmp_path / f"{part}-labels.idx1-ubyte", np.array([0, 1], np.uint8))
    (tmp_path / "README.md").write_text("ours")
    found = IdxFolder.open(tmp_path)
    assert found.shape == (4, 5, 3) and found.examples(2)[0].shape == (2, 4, 5, 3)


def no_public_images(folder):
    (folder / "t10k-images-idx3-ubyte").unlink()
    return r"no file of t10k images, such as t10k-images-idx3-ubyte\.gz"


def plain_and_compressed(folder):
    write_idx(folder / f"{LABELS}.gz", images(7)[1])
    return f"{LABELS} and {LABELS}.gz: one of them must go"


def fewer_labels(folder):
    write_idx(folder / LABELS, images(6)[1])
    return f"{IMAGES} holds 7 images, {LABELS} 6 labels"


def public_ones_of_another_shape(folder):
    write_idx(folder / "t10k-images-idx3-ubyte", images(3, 9)[0])
    return r"images of \(8, 8, 1\), t10k-images-idx3-ubyte of \(9, 9, 1\)"


def images_for_labels(folder):
    write_idx(folder / LABELS, images(7)[0])
    return f"{LABELS} has 3 axes, labels have 1"


def nothing_in_it(folder):
    write_idx(folder / LABELS, np.zeros(0, np.uint8))
    return "holds nothing"


def some_other_file(folder):
    (folder / IMAGES).write_bytes(b"PK\x03\x04 an archive of secrets")
    return f"{IMAGES} is no IDX file"


def an_empty_file(folder):
    (folder / IMAGES).write_bytes(b"")
    return f"{IMAGES} is no IDX file"


def floats(folder):
    (folder / IMAGES).write_bytes(idx_bytes(images(7)[0], kind=13))
    return f"{IMAGES} holds floats; only unsigned bytes"


def half_a_header(folder):
    (folder / IMAGES).write_bytes(idx_bytes(images(7)[0])[:9])
    return f"{IMAGES} ends within its header"


def no_gzip(folder):
    (folder / IMAGES).rename(folder / f"{IMAGES}.gz")
    return rf"{IMAGES}\.gz: cannot be read \(BadGzipFile\)"


CHANGES = [no_public_images, plain_and_compressed, fewer_labels, public_ones_of_another_shape,
           images_for_labels, nothing_in_it, some_other_file, an_empty_file, floats, half_a_header,
           no_gzip]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_headers_that_are_wrong(tmp_path, change):
    folder = write_folder(tmp_path / "data", 7, 3)
    IdxFolder.open(folder)
    message = change(folder)
    with pytest.raises(IdxError, match=message) as caught:
        IdxFolder.open(folder)
    assert "secret" not in str(caught.value)


def test_contents_that_are_wrong(tmp_path):
    """Short, long, cut off, or labels that are no class: the file is named, no value is."""
    file = tmp_path / "train-images-idx3-ubyte"
    raw = idx_bytes(images(7)[0])
    for data, message in (
        (raw[:-1], "announces 448 bytes of data, there are 447"),
        (raw + b"\0", "announces 448 bytes of data, there are more"),
        (idx_bytes(np.zeros(2, np.uint8))[:4] + b"\xff" * 4, "announces 4,294,967,295 bytes"),
    ):
        file.write_bytes(data)
        with pytest.raises(IdxError, match=message):
            read_idx(file)
    cut = tmp_path / "train-images-idx3-ubyte.gz"
    cut.write_bytes(gzip.compress(raw)[:-20])
    with pytest.raises(IdxError, match="cannot be read"):
        read_idx(cut)
    with pytest.raises(IdxError, match=r"cannot be read \(FileNotFoundError\)"):
        read_idx(tmp_path / "away")
    found = IdxFolder.open(write_folder(tmp_path / "data", 7, 3))
    with pytest.raises(IdxError, match="2 of 7 labels are no class: they must be below 5"):
        found.examples(5)
    assert len(found.examples(7)[1]) == 7
