"""Keys are read where they are used, and only where nobody else can read them."""

from __future__ import annotations

import os
import traceback

import pytest
from apache_beam.utils.secret import Secret

from beam_ldp.randomizers.randomness import MIN_KEY_BYTES
from beam_ldp.transforms.device.keyed import read_key

pytestmark = pytest.mark.exact

KEY = bytes(range(100, 100 + MIN_KEY_BYTES))


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "release.key"
    path.write_bytes(KEY)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_of_its_owner_alone_is_read(key_file, mode):
    key_file.chmod(mode)
    assert read_key(str(key_file)) == KEY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o666, 0o777, 0o610, 0o601])
def test_a_key_that_others_can_read_or_replace_is_refused_with_the_way_out(key_file, mode):
    key_file.chmod(mode)
    with pytest.raises(ValueError, match=r"memoize_key_file .* owner alone: chmod 600 .*key"):
        read_key(str(key_file))
    link = key_file.with_name("link")
    link.symlink_to(key_file)  # what is read counts
    with pytest.raises(ValueError, match=r"people_key_file .* owner alone"):
        read_key(str(link), "people_key_file")


def test_errors_quote_nothing_of_a_key(key_file):
    key_file.write_bytes(KEY[:-1])
    with pytest.raises(ValueError, match=f"at least {MIN_KEY_BYTES} secret bytes") as short:
        read_key(str(key_file))
    with pytest.raises(ValueError, match="must be readable on every worker") as missing:
        read_key(str(key_file.with_name("nothing")))
    for refusal in (short, missing):
        text = "".join(traceback.format_exception(refusal.value))
        assert KEY[:8].decode("latin1") not in text and repr(KEY[:8])[2:-1] not in text


def test_a_secret_of_a_manager_takes_the_place_of_a_file(monkeypatch):
    asked = []

    class StoredBytes(Secret):
        def get_secret_bytes(self):
            return KEY

    def parse(notation):
        asked.append(notation)
        return StoredBytes()

    monkeypatch.setattr(Secret, "parse_secret_option", staticmethod(parse))
    notation = "type:GcpSecret;version_name:projects/p/secrets/s/versions/1"
    assert read_key(notation) == KEY and asked == [notation]


def test_a_secret_that_no_manager_knows_is_refused():
    with pytest.raises(ValueError, match="people_key_file must be readable on every worker: type"):
        read_key("type:NoSuchManager;name:x", "people_key_file")


def test_files_of_tests_are_their_owners(tmp_path):
    """As `tests/conftest.py` has it, so that a key is written in one line."""
    (tmp_path / "file").write_text("")
    assert os.stat(tmp_path / "file").st_mode & 0o077 == 0
