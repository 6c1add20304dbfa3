"""What pairs of runs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from beam_ldp.pipelines.frequencies.answer import FrequencyAnswer, PartsAnswer
from beam_ldp.pipelines.means.answer import MeanAnswer
from beam_ldp.release import runner


@pytest.fixture(scope="module", autouse=True)
def plain_pictures() -> Iterator[None]:
    """Pictures take longer than releases of so few people."""
    with pytest.MonkeyPatch.context() as patch:
        for answer in (FrequencyAnswer, MeanAnswer, PartsAnswer):
            patch.setattr(answer, "plot", lambda *_: None)
        patch.setattr(runner, "png", lambda _: b"")
        yield
