"""The same for these programs."""

from tests.pipelines.conftest import plain_pictures, untracked

__all__ = ["plain_pictures", "untracked"]
