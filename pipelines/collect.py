"""`beam-ldp collect`: count reports that were randomized elsewhere; no raw value is ever seen.

The same program as `python -m beam_ldp.pipelines.collect`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from beam_ldp.pipelines import run
from beam_ldp.pipelines.flags import BUDGET, COMMON, DATA, MECHANISM, OUTPUT, PRICE, Flags, Groups
from beam_ldp.pipelines.frequency import FLAGS as FREQUENCY
from beam_ldp.pipelines.frequency import Frequency, FrequencySettings
from beam_ldp.pipelines.job import Outputs
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.oracle_choice import rare_error
from beam_ldp.pipelines.price import expected_price
from beam_ldp.pipelines.question import Choice, Rows
from beam_ldp.pipelines.record import PrivacyRecord
from beam_ldp.pipelines.settings import SHOWN, check_common, need
from beam_ldp.pipelines.statement_words import Words, words_of
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.transforms import Aggregate, EstimateFrequencies, ReadReports
from beam_ldp.transforms.report_files import find_report_files
from beam_ldp.transforms.shuffle import Shuffle, ShuffleInParts


def _some(flags: Flags, *names: str) -> Flags:
    return {name: flags[name] for name in names}


FLAGS: Groups = {
    "the reports": {
        "--reports": {
            "action": "append", "metavar": "PATH",
            "help": "file or glob of envelopes, on any file system that Beam knows; may be "
            "repeated; names that begin with _ or . or end in .json are left out",
        },
        "--release": {
            "metavar": "FILE",
            "help": "release.json: what devices and collector agreed upon (see `beam-ldp "
            "randomize`)",
        },
        "--question": {
            "metavar": "NAME", "help": "what was asked, for the record (default: the release id)",
        },
        "--domain": {"metavar": "FILE", "help": "public list of values that the devices had"},
        **_some(FREQUENCY[DATA], "--other-label"),
        "--max-bad-rows": {
            **COMMON[DATA]["--max-bad-rows"],
            "help": "release nothing if more envelopes are refused (default: no limit)",
        },
    },
    "the price": {
        **_some(COMMON[PRICE], "--delta", "--expected-users", "--min-reports"),
        **_some(COMMON[PRICE], "--honest-fraction"),
    },
    "the shuffle": _some(COMMON[MECHANISM], "--shuffle-output", "--scope"),
    BUDGET: {
        name: how for name, how in COMMON[BUDGET].items() if not name.startswith("--people")
    },
    OUTPUT: FREQUENCY[OUTPUT],
}  # fmt: skip

EXAMPLES = """examples:
  what would it cost, and how accurate would it be? (reads no report)
    beam-ldp collect --reports 'reports/*' --release reports/release.json --domain urls.txt \\
        --delta 1e-8 --min-reports 9e5 --output out --dry-run
  the same for real
    beam-ldp collect --reports 'reports/*' --release reports/release.json --domain urls.txt \\
        --delta 1e-8 --min-reports 9e5 --output out
  devices can lie: at least four reports of five are taken to be honest
    beam-ldp collect ... --honest-fraction 0.8
"""


@dataclass(frozen=True, kw_only=True)
class CollectSettings(FrequencySettings):
    """The flags of `collect`, checked; what others choose stands in `release.json`.

    Attributes:
        release: path of `release.json`.
        terms: what it holds.
    """

    release: str
    terms: ReleaseTerms

    @property
    def doing(self) -> str:
        return "reading and counting"

    @property
    def persons_unknown(self) -> str:
        return (
            "each report was taken for a person: that nobody sent two is for whoever lets devices "
            "send to see to"
        )


@dataclass(frozen=True)
class CollectRecord(PrivacyRecord):
    """The record of reports that came from elsewhere."""


class Collect(Frequency):
    """How often does each value occur, from reports that were randomized elsewhere?"""

    name = "collect"
    summary = (
        "How often does each value of a public list occur, among people whose devices have sent "
        "randomized reports? Starts at the shuffle: no raw value is ever seen. What cannot be a "
        "report of this release is refused and listed, and copies count once."
    )
    usage = (
        "--reports PATH --release FILE --domain FILE --delta D "
        "(--min-reports N | --expected-users N) --output DIR [...]"
    )
    examples = EXAMPLES
    flags = FLAGS
    record_type = CollectRecord
    settings: CollectSettings

    def __init__(self, settings: CollectSettings) -> None:
        super().__init__(settings)
        if settings.terms.domain_digest != self.domain.digest:
            raise UsageError(
                f"--domain {settings.domain}: not the list that the devices had (another value, "
                "another order or another --other-label)"
            )

    @classmethod
    def check(cls, values: argparse.Namespace) -> CollectSettings:
        need(values, "reports", "release", "domain", "delta", "output")
        terms = load_terms(values.release)
        for name, value in _decided_elsewhere(terms).items():
            setattr(values, name, value)
        values.input = values.reports
        try:
            files = find_report_files(values.reports)
        except ValueError as error:
            raise UsageError(f"--reports {error}") from None
        if values.top < 1:
            raise UsageError("--top must be >= 1")
        return check_common(
            values,
            CollectSettings,
            column=values.question or terms.release_id,
            domains=(values.domain,),
            terms=terms,
            num_files=len(files),
        )

    @property
    def oracle(self) -> FrequencyOracle:
        """What the devices ran."""
        randomizer = self.settings.terms.randomizer
        assert isinstance(randomizer, FrequencyOracle)
        return randomizer

    def choose(self) -> Choice:
        settings, n = self.settings, self.settings.planned_reports
        price = None
        if not settings.terms.simulated:
            price = expected_price(self.oracle, n, settings.delta, settings.honest_fraction)
        return Choice(self.oracle, n, price, rare_error(self.oracle, n))

    def inputs(self) -> Rows:
        return [("release", self.settings.terms.release_id), *super().inputs()]

    def stages(self, pipeline: beam.Pipeline, choice: Choice) -> Outputs:
        settings, oracle = self.settings, self.oracle
        reports = pipeline | "Read" >> ReadReports(settings.input, settings.terms)
        shuffle = Shuffle(
            oracle,
            settings.min_reports,
            settings.shuffle_output,  # type: ignore[arg-type]
            settings.scope,  # type: ignore[arg-type]
        )
        shuffled = reports | "Shuffle" >> ShuffleInParts(shuffle)
        released = (
            shuffled
            | "Aggregate" >> Aggregate(oracle)
            | "Estimate"
            >> EstimateFrequencies(oracle, min_reports=settings.min_reports, question=self.about)
        )
        withheld = (shuffled[0].withheld, released.withheld) | "Withheld" >> beam.Flatten()
        return Outputs(released, withheld, (reports.bad_rows,))


def _decided_elsewhere(terms: ReleaseTerms) -> dict[str, object]:
    """The flags of the other programs that this one has not: where the values are, they were
    decided, or nobody decides them."""
    return {
        "input_format": "envelopes",
        "csv_delimiter": None,
        "user_id": None,
        "bad_rows": SHOWN,
        "epsilon": None,
        "local_epsilon": terms.randomizer.local_epsilon,
        "max_local_epsilon": None,
        "strict": False,
        "mechanism": type(terms.randomizer).__name__,
        "max_bits": None,
        "memoize_key_file": None,
        "release_id": terms.release_id,
        "seed": 0 if terms.simulated else None,
        "people_store": None,
        "people_key_file": None,
    }


def load_terms(path: str) -> ReleaseTerms:
    """What `release.json` holds.

    Raises:
        UsageError: if it cannot be read, contradicts itself, or is not about a list of values.
    """
    try:
        with FileSystems.open(path, "application/octet-stream") as file:
            content = file.read()
    except Exception as error:
        raise UsageError(f"--release {path}: cannot be read ({type(error).__name__})") from None
    try:
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError("no JSON object")
        terms = ReleaseTerms.from_json(found)
    except ValueError as error:
        raise UsageError(f"--release {path}: {error}") from None
    if not isinstance(terms.randomizer, FrequencyOracle):
        raise UsageError(f"--release {path}: not about values of a public list")
    return terms


@words_of.register
def _collected(record: CollectRecord) -> Words:
    return replace(
        words_of.dispatch(PrivacyRecord)(record),
        person="A person is whoever sent a report. Copies of an envelope are counted once; a "
        "second report of the same person cannot be told from another person's, and that nobody "
        "sends two is for whoever lets devices send to see to.",
        person_briefly="whoever sent a report; copies of an envelope count once",
        readers="It was not seen here: only randomized reports came in.",
        shuffler="The shuffler**, that is the workers of the runner, sees each randomized report "
        "as it arrived; whoever received it may know who sent it. There a person is protected by "
        "the local epsilon alone.",
        refused="that an envelope was refused, where it stands and why: "
        f"{record.num_bad_rows or 0:,} of them",
        noise="* noise: drawn on the devices. That they did so, and with fresh randomness, is what "
        "they promise their owners; nothing here could check it",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    return run.main(Collect, argv)


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.collect import main as program

    sys.exit(program())
