"""What pairs of runs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from beam_ldp.questions.frequency_view import FrequencyView
from beam_ldp.questions.mean_view import MeanView
from beam_ldp.questions.parts import PartsView
from beam_ldp.release import runner


@pytest.fixture(scope="module", autouse=True)
def plain_pictures() -> Iterator[None]:
    """Pictures take longer than releases of so few people."""
    with pytest.MonkeyPatch.context() as patch:
        for view in (FrequencyView, MeanView, PartsView):
            patch.setattr(view, "figure", lambda *_: None)
        patch.setattr(runner, "png", lambda _: b"")
        yield
