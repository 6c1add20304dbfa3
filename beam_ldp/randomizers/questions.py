"""Several questions to each person: one of them drawn at random, or all with a split budget.

Both are one mechanism of frequency oracles, one oracle per question, so every stage, price and file
format that takes a mechanism takes them. A value is a row of indices, one per question.
"""

from __future__ import annotations

from beam_ldp.randomizers.every_question import EveryQuestion
from beam_ldp.randomizers.one_question import OneQuestion
from beam_ldp.randomizers.question_set import Questions

__all__ = ["EveryQuestion", "OneQuestion", "Questions"]
