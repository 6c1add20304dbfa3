"""Which batches rewards are of, as the plays in the first rows say: `2:blue` is of batch 2."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow.compute as pc

from beam_ldp.decisions.commands.usage import ADVANCE, RewardQuestion
from beam_ldp.pipelines.flags import Arguments
from beam_ldp.pipelines.inputs.heads import read_heads
from beam_ldp.pipelines.inputs.sources import InputFileError, RowReader
from beam_ldp.pipelines.settings import Settings, section_from, with_files
from beam_ldp.settings import SettingError
from beam_ldp.settings.sections import Source
from beam_ldp.transforms.elements.blocks import TableBlock

_PLAY = re.compile(r"(\d+):.")


def batches_in(given: Arguments) -> set[int]:
    """Numbers of the batches in the first rows of each file; none where that cannot be read, which
    the program then says. Whether they are, decides nothing but what to say: rewards of another
    batch never count."""
    column = given["people"].get("group_by", "play")
    try:
        source = section_from(given, ADVANCE, "source", Source)
        settings = with_files(Settings(source=source, question=RewardQuestion()))
        told = settings.source
        reader = RowReader(told.format, (column,), None, "dead_letter", told.delimiter, None)  # type: ignore[arg-type]
        heads = read_heads(settings.files, reader)
    except (SettingError, InputFileError):
        return set()
    return {number for head in heads for number in batches_named(head.blocks, column)}


def batches_named(blocks: Iterable[TableBlock], column: str) -> set[int]:
    """Numbers of the batches that the plays in a column name."""
    found = set()
    for block in blocks:
        if column in block.batch.schema.names:
            for value in pc.unique(block.batch.column(column)).to_pylist():
                if match := _PLAY.match(str(value)):
                    found.add(int(match[1]))
    return found
