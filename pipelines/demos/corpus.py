"""People who hold one English word each, drawn from real counts of words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from beam_ldp.pipelines.demos import PEOPLE_SEED

CORPUS = "frequency_dictionary_en_82_765.txt"
ROW_GROUP = 1 << 17


@dataclass(frozen=True)
class Corpus:
    """Words with their counts in real text, most frequent first."""

    words: tuple[str, ...]
    counts: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        return self.counts / self.counts.sum()


def load_corpus() -> Corpus:
    """English words and how often each occurs in real text, from the package symspellpy.

    Raises:
        click.ClickException: if the package is not installed.
    """
    try:
        import symspellpy
    except ImportError:
        raise click.ClickException(
            "the demo's words come from the package symspellpy: pip install 'beam-ldp[demo]'"
        ) from None
    path = Path(symspellpy.__file__).parent / CORPUS
    lines = [line.split() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    lines.sort(key=lambda line: (-int(line[1]), line[0]))
    return Corpus(tuple(line[0] for line in lines), np.array([int(line[1]) for line in lines]))


def write_people(
    corpus: Corpus, users: int, domain_size: int, folder: Path
) -> tuple[Path, Path, np.ndarray]:
    """Simulated people, one word each, and the public list of words.

    Returns:
        Path of the people (Parquet), path of the list, and the truth: how many of so many people
        hold each listed word where all text is counted (`other` last). Estimates from one drawn row
        per person speak of the population that the people come from, and their intervals allow
        for that draw.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(PEOPLE_SEED)
    held = rng.choice(len(corpus.words), size=users, p=corpus.shares).astype(np.int32)
    ids = rng.permutation(users).astype(np.int64)
    words = pa.array(corpus.words)
    table = pa.table(
        {"user_id": ids, "word": pa.DictionaryArray.from_arrays(pa.array(held), words).cast("str")}
    )
    folder.mkdir(parents=True, exist_ok=True)
    people, listed = folder / "people.parquet", folder / "words.txt"
    pq.write_table(table, people, row_group_size=ROW_GROUP)
    listed.write_text("".join(f"{word}\n" for word in corpus.words[:domain_size]), "utf-8")
    shares = corpus.shares
    truth = np.append(shares[:domain_size], shares[domain_size:].sum()) * users
    return people, listed, truth
