"""What `beam-ldp plan` takes: the settings of each program that its plan depends on, and sizes in
the place of data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from beam_ldp.pipelines.usage import frequency, heavy_hitters, mean, user_mean
from beam_ldp.settings.fields import NUMBER, SWITCH, TEXT, WHOLE, setting
from beam_ldp.settings.sections import Mechanism, Output, People, Privacy, Shuffling
from beam_ldp.settings.usage import MECHANISM, OUTPUT, PRIVACY, Part, Usage
from beam_ldp.training import usage as train

SIZES = "the sizes"


@dataclass(frozen=True, kw_only=True)
class PlanAction:
    """What to say of a plan beside the plan."""

    workers: int | None = setting(
        None, "number of cores: print how long the job would take", WHOLE,
        flag="workers", metavar="N", basic=True,
    )  # fmt: skip
    price_per_core_hour: float | None = setting(
        None, "with --workers: print what the job would cost", NUMBER,
        flag="price-per-core-hour", metavar="P", basic=True,
    )  # fmt: skip
    plot: str | None = setting(
        None, "plot the error of every mechanism against epsilon, as a PNG", TEXT,
        flag="plot", metavar="FILE", basic=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ListSizes:
    """How long public lists are."""

    domain_size: tuple[int, ...] = setting(
        (),
        "number of values of the public list, without `other`, in place of {question.domain}; "
        "repeat it for several questions",
        WHOLE, flag="domain-size", metavar="N", many=True, basic=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Groups:
    """How people are parted into public groups."""

    groups: int | None = setting(
        None,
        "number of public groups: what a group sees, from {shuffle.min_reports} reports on "
        "(default: 0.9 of the people of the smallest group)",
        WHOLE, flag="groups", metavar="N", basic=True,
    )  # fmt: skip
    group_share: float | None = setting(
        None, "with --groups: share of the people in the smallest group (default: 1/N)", NUMBER,
        flag="group-share", metavar="SHARE",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Attacker:
    """What else is told of each mechanism."""

    attack: bool = setting(
        False,
        "print how often somebody who knew nothing of a vector finds its direction in what one "
        "person sent, and from which local epsilon in 1 % and 10 % of cases",
        SWITCH, flag="attack", basic=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ClientSizes:
    """How many clients there are."""

    clients: int | None = setting(
        None,
        "number of clients, in place of the files that {training.data} names; needs "
        "{training.shape} and {training.classes}",
        WHOLE, flag="clients", metavar="N", basic=True,
    )  # fmt: skip


_FORMAT = Part("output", Output, OUTPUT, only=("format",), own={"format": {"basic": True}})
_LISTS = Part("sizes", ListSizes, SIZES)
_PRIVATE = Part("privacy", Privacy, PRIVACY)
_SHUFFLE = Part("shuffle", Shuffling, MECHANISM)
_DIMENSION: dict[str, Any] = {
    "dimension": {"help": "numbers per person (default: one for each column or range that is "
                  "named)", "basic": True}}  # fmt: skip

EXIT_CODES = """
exit codes: 0 done; 2 a flag is wrong; 3 the target does not allow what is asked
"""


def _of(program: Usage, home: str, **how: Any) -> Part:
    """A part of a program's, narrowed."""
    found = next(part for part in program.parts if part.home == home)
    return replace(found, title=SIZES if home == "question" else found.title, **how)


FREQUENCY = Usage(
    name="plan frequency",
    summary="All mechanisms for counting values of a public list, the most accurate first, and "
    "what a release with these settings would be. The error is the standard error, in people, of "
    "the count of a value that hardly anybody holds: a value stands out when several times as many "
    "people hold it. The same for several questions to each person, for numbers in bins with their "
    "quantiles and ranges, and for public groups.",
    synopsis="--expected-users N --domain-size N --delta D (--epsilon EPS | --local-epsilon EPS0) "
    "[...]",
    examples="""examples:
  beam-ldp plan frequency --expected-users 1e6 --domain-size 1000 --epsilon 1 --delta 1e-8
  short reports, and programs that read the answer
    beam-ldp plan frequency --expected-users 1e6 --domain-size 1000 --local-epsilon 4 \\
        --delta 1e-8 --max-bits 32 --format json
  two questions to each person: one of them drawn at random, or both with a split budget
    beam-ldp plan frequency --expected-users 1e5 --domain-size 5 --domain-size 12 \\
        --epsilon 1 --delta 1e-8
  ages: quantiles, and how many people lie in a range
    beam-ldp plan frequency --expected-users 1e5 --bins 0:120:120 --quantiles 0.1,0.5,0.9 \\
        --between 18:65 --epsilon 1 --delta 1e-8
  200 countries, of which the smallest has one person in a thousand
    beam-ldp plan frequency --expected-users 1e8 --domain-size 100 --groups 200 \\
        --group-share 0.001 --epsilon 1 --delta 1e-10
  what the job would take of a cluster, and what other budgets would buy
    beam-ldp plan frequency --expected-users 1e10 --domain-size 1000 --epsilon 1 --delta 1e-12 \\
        --workers 100 --price-per-core-hour 0.05 --plot plan.png
""",
    parts=(
        _LISTS,
        Part("sizes", Groups, SIZES),
        _of(frequency.USAGE, "question", without=("other", "bad_rows", "postprocess", "staged")),
        replace(_PRIVATE, without=("model",)),
        _of(frequency.USAGE, "mechanism"),
        _SHUFFLE,
        _FORMAT,
    ),
    exit_codes=EXIT_CODES,
    runs_on_beam=False,
    action=PlanAction,
)

MEAN = Usage(
    name="plan mean",
    summary="All mechanisms for the mean of vectors, the most accurate first, and what a release "
    "with these settings would be. Errors are for the vectors that are worst for the mechanism, in "
    "the units of the data: the standard error of one coordinate, and the root mean square norm of "
    "the error of the whole vector. With a central target, every mechanism is tuned to cost "
    "exactly that after shuffling. Some send one report, which is shuffled with everybody else's; "
    "L1Mean, L2Mean, LInfMean and BinaryVectorMean send many messages of one bit or a few, each "
    "kind shuffled separately. Those come far closer to a trusted curator, but protect a person "
    'little before the shuffle: see the column "local epsilon", which --max-local-epsilon '
    'limits. The column "times" compares squared errors: under a local budget with a proved '
    "bound for all unbiased mechanisms; under a central target with the noise that a trusted "
    "curator would add (for reference: there is no proof that shuffling needs as much).",
    synopsis="--expected-users N --dimension D (--delta D --epsilon EPS | --local-epsilon EPS0) "
    "[...]",
    examples="""examples:
  beam-ldp plan mean --expected-users 1e5 --dimension 784 --epsilon 1 --delta 1e-8 --plot plan.png
  short reports; and where only the device is trusted
    beam-ldp plan mean --expected-users 1e5 --dimension 784 --epsilon 1 --delta 1e-8 --max-bits 512
    beam-ldp plan mean --expected-users 1e5 --dimension 784 --epsilon 4 --model local
  numbers in a public range, or each in its own (a file of column,low,high)
    beam-ldp plan mean --expected-users 1e5 --dimension 3 --range 0 1440 --epsilon 1 --delta 1e-8
    beam-ldp plan mean --expected-users 1e5 --ranges ranges.csv --epsilon 1 --delta 1e-8
  what an attacker sees of one person
    beam-ldp plan mean --expected-users 1e5 --dimension 784 --local-epsilon 6 --attack
""",
    parts=(
        Part("sizes", Attacker, SIZES),
        _of(mean.USAGE, "question", without=("bad_rows", "shape", "outside"), own=_DIMENSION),
        Part("people", People, SIZES, only=("id",), own={"id": {"basic": False}}),
        _PRIVATE,
        _of(mean.USAGE, "mechanism"),
        _SHUFFLE,
        _FORMAT,
    ),
    exit_codes=EXIT_CODES,
    runs_on_beam=False,
    action=PlanAction,
)

_ROWS_OF_PEOPLE = user_mean.PARTS[1]
USER_MEAN = Usage(
    name="plan user-mean",
    summary="Both rounds of the mean of people's numbers where each person has many rows: who "
    "answers what, with which mechanism, and how far the mean will be off.",
    synopsis="--expected-users N --range LOW HIGH --rows-per-user M --sigma S --delta D "
    "(--epsilon EPS | --local-epsilon EPS0) [...]",
    examples="""examples:
  people have 30 rows or more, spread by about an hour
    beam-ldp plan user-mean --expected-users 1e5 --range 0 1440 --rows-per-user 30 --sigma 60 \\
        --epsilon 1 --delta 1e-8
  several numbers at once, where only the device is trusted
    beam-ldp plan user-mean --expected-users 1e5 --dimension 2 --range 0 1440 --rows-per-user 30 \\
        --model local --local-epsilon 4
""",
    parts=(
        replace(
            _ROWS_OF_PEOPLE, title=SIZES, own={**_ROWS_OF_PEOPLE.own, **_DIMENSION},
            without=(*_ROWS_OF_PEOPLE.without, "bad_rows", "shape"),
        ),
        _PRIVATE,
        _SHUFFLE,
        _FORMAT,
    ),
    exit_codes=EXIT_CODES,
    runs_on_beam=False,
    action=PlanAction,
)  # fmt: skip

HEAVY_HITTERS = Usage(
    name="plan heavy-hitters",
    summary="How a search for words that nobody listed would go: how many levels, what each asks, "
    "which words it finds with which probability, beside what any protocol could find, and what it "
    "costs where nobody learns who answered which level, and where readers do.",
    synopsis="--expected-users N --local-epsilon EPS0 --delta D [...]",
    examples="""examples:
  words of up to 32 bytes, among ten million people
    beam-ldp plan heavy-hitters --expected-users 1e7 --local-epsilon 6 --delta 1e-8
  addresses, whose codes are longer, for a program
    beam-ldp plan heavy-hitters --expected-users 1e6 --local-epsilon 6 --delta 1e-8 \\
        --max-bytes 64 --code-bits 192 --format json
""",
    parts=(
        _of(heavy_hitters.USAGE, "question", without=("bad_rows",)),
        _of(heavy_hitters.USAGE, "privacy"),
        _of(heavy_hitters.USAGE, "shuffle"),
        _FORMAT,
    ),
    exit_codes=EXIT_CODES,
    runs_on_beam=False,
    action=PlanAction,
)

TRAIN = Usage(
    name="plan train",
    summary="The privacy cost of a training, round by round and by every accountant that applies, "
    "and how many rounds a target allows. Needs no TensorFlow.",
    synopsis="(--data NAME | --clients N --shape HxWxC --classes K) --local-epsilon EPS0 "
    "--clients-per-round K --epochs E --delta D [...]",
    examples="""examples:
  a training on bundled data, stopped at a target
    beam-ldp plan train --data mnist --local-epsilon 2 --clients-per-round 2000 --epochs 200 \\
        --delta 1e-5 --epsilon 3
  clients of your own: 10,000 of them with 20 points each
    beam-ldp plan train --clients 1e4 --points-per-client 20 --shape 28x28x1 --classes 10 \\
        --algorithm fedavg --local-epsilon 4 --clients-per-round 500 --epochs 30 --delta 1e-6
""",
    parts=(
        Part("sizes", ClientSizes, SIZES),
        *(part for part in train.PARTS if part.home in ("training", "privacy", "mechanism")),
        _FORMAT,
    ),
    exit_codes=EXIT_CODES,
    runs_on_beam=False,
    action=PlanAction,
)


@dataclass(frozen=True, kw_only=True)
class ListAction:
    """How mechanisms are listed."""

    format: str = setting(
        "table", "format of what is printed", flag="format",
        choices=("table", "json", "markdown"), basic=True,
    )  # fmt: skip


MECHANISMS = Usage(
    name="plan mechanisms",
    summary="All mechanisms, in their own words: their other names, what they are for, and what "
    "decoding takes.",
    synopsis="[--mechanism PACKAGE:CLASS] [--format FORMAT]",
    examples="""examples:
  beam-ldp plan mechanisms
  beam-ldp plan mechanisms --mechanism my_package:MyOracle --format markdown
""",
    parts=(
        Part(
            "mechanism", Mechanism, MECHANISM, only=("name",),
            own={"name": {"help": "also list this mechanism of your own; may be repeated",
                          "metavar": "PACKAGE:CLASS", "many": True}},
        ),
    ),
    exit_codes=EXIT_CODES,
    runs_on_beam=False,
    action=ListAction,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ConvexTraining:
    """A convex training, and who reports."""

    clients: int | None = setting(
        None, "number of clients", WHOLE, flag="clients", metavar="N", basic=True,
    )  # fmt: skip
    clients_per_round: int | None = setting(
        None, "clients that report in each round; with {convergence.sampling} self, on average",
        WHOLE, flag="clients-per-round", metavar="K", basic=True,
    )  # fmt: skip
    points_per_client: int = setting(
        1, "data points of each client", WHOLE, flag="points-per-client", metavar="M",
    )  # fmt: skip
    points_sampled: int = setting(
        1, "of them, points that a client reports the gradients of in a round", WHOLE,
        flag="points-sampled", metavar="S",
    )  # fmt: skip
    sampling: str = setting(
        "fixed", "how a round's clients are drawn: so many of all, or by a coin of each client",
        flag="sampling", choices=("fixed", "self"),
    )  # fmt: skip
    dimension: int | None = setting(
        None, "number of parameters", WHOLE, flag="dimension", metavar="D", basic=True,
    )  # fmt: skip
    norm: str = setting(
        "l2", "norm in which gradients are bounded", flag="norm", choices=("l2", "linf", "l1"),
        basic=True,
    )  # fmt: skip
    lipschitz: float = setting(
        1.0, "largest norm of the gradient of a loss (default 1)", NUMBER, flag="lipschitz",
        metavar="C", basic=True,
    )  # fmt: skip
    diameter: float = setting(
        2.0, "Euclidean diameter of the set of parameters (default 2)", NUMBER, flag="diameter",
        metavar="C", basic=True,
    )  # fmt: skip
    rounds: tuple[int, ...] = setting(
        (), "number of rounds; may be repeated (default: 1, 3, 10, 32 ... 100,000)", WHOLE,
        flag="rounds", metavar="N", many=True, basic=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DrawAction:
    """What to say beside the table."""

    plot: str | None = setting(
        None, "plot the bound against rounds, at this epsilon, a quarter and four times of it",
        TEXT, flag="plot", metavar="FILE", basic=True,
    )  # fmt: skip


CONVERGENCE = Usage(
    name="plan convergence",
    summary="How close a convex training is sure to come to its optimum at a central epsilon, by "
    "number of rounds: more rounds come closer, and leave less local epsilon to each report. The "
    "bound holds for every convex loss with such gradients and is far from what most data give: "
    "use it to choose rounds, steps and messages, not to predict an accuracy.",
    synopsis="--clients N --clients-per-round K --dimension D --epsilon EPS --delta D [...]",
    examples="""examples:
  logistic regression with 100 features, in a ball of radius 1
    beam-ldp plan convergence --clients 60000 --clients-per-round 2000 --dimension 100 \\
        --epsilon 1 --delta 1e-6
  gradients bounded coordinate by coordinate, and a picture
    beam-ldp plan convergence --clients 60000 --clients-per-round 2000 --dimension 100 \\
        --norm linf --lipschitz 0.1 --epsilon 1 --delta 1e-6 --plot convergence.png
""",
    parts=(
        Part("convergence", ConvexTraining, "the training"),
        Part("privacy", Privacy, "the privacy cost", only=("epsilon", "delta", "max_local_epsilon"),
             own={"epsilon": {"help": "central epsilon of all rounds together"}}),
        _FORMAT,
    ),
    exit_codes=EXIT_CODES,
    runs_on_beam=False,
    action=DrawAction,
)  # fmt: skip

PLANS = {
    "frequency": FREQUENCY, "mean": MEAN, "user-mean": USER_MEAN, "heavy-hitters": HEAVY_HITTERS,
    "train": TRAIN,
}  # fmt: skip


def over_a_job(program: Usage) -> Usage:
    """What stands over a job file: flags of its program, sizes, and what to say of the plan."""
    more = {"frequency": (_LISTS,), "train": (Part("sizes", ClientSizes, SIZES),)}
    return replace(
        program,
        parts=(*program.parts, *more.get(program.name, ())),
        action=PlanAction,
        runs_on_beam=False,
    )
