"""The flags of `beam-ldp user-mean`, and what they mean."""

from __future__ import annotations

from dataclasses import replace

from beam_ldp.pipelines.flags import Arguments, UsageError
from beam_ldp.pipelines.means.settings import checked_means, needed_of_privacy, radius_of
from beam_ldp.pipelines.settings import Settings, need, section_from, settings_from
from beam_ldp.pipelines.usage.user_mean import USAGE, UserMeanQuestion
from beam_ldp.pipelines.views.tables import LEVEL

UserMeanSettings = Settings[UserMeanQuestion]


def check_user_mean(given: Arguments) -> UserMeanSettings:
    """The settings, with every rule checked. Raises UsageError."""
    need(USAGE, given, "source.paths", "output.folder", "people.id", *needed_of_privacy(given))
    question = _with_space(section_from(given, USAGE, "question", UserMeanQuestion))
    if question.rows_per_user < 1:
        raise UsageError("--rows-per-user must be >= 1")
    left = round(1 - LEVEL, 12)
    if not 0 < question.failure_probability < left:
        raise UsageError(
            f"--failure-probability must lie in (0, {left:g}): intervals at level {LEVEL:.0%} "
            f"leave no more, got {question.failure_probability}"
        )
    return checked_means(settings_from(given, USAGE, question, UserMeanSettings))


def _with_space(question: UserMeanQuestion) -> UserMeanQuestion:
    """The question with its norm and radius filled in: ranges are the cube."""
    given = [name for name in ("range", "ranges", "radius") if getattr(question, name)]
    if len(given) != 1:
        raise UsageError(
            "give one of --range LOW HIGH, --ranges FILE and --radius R: the public bounds of rows"
        )
    if not question.radius:
        return replace(question, norm="linf", radius=1.0)
    return replace(question, norm="l2", radius=radius_of(question.radius))
