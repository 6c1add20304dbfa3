"""`beam-ldp plan`: what a release would cost and how accurate it would be. Reads no data."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from beam_ldp.pipelines.flags import print_help, read_flags
from beam_ldp.pipelines.usage.plan import CONVERGENCE, MECHANISMS, PLANS, over_a_job
from beam_ldp.release.commands import COMMANDS, job_name, usage_of, usage_or_none
from beam_ldp.release.job_files import read_job
from beam_ldp.settings import SettingError
from beam_ldp.settings.sections import EXPECTED_SHARE
from beam_ldp.settings.usage import Arguments, Usage

if TYPE_CHECKING:
    from beam_ldp.pipelines.views.plans import Plans
    from beam_ldp.release.planned import PlannedRun

HELP = """Usage: beam-ldp plan COMMAND [FLAGS]
       beam-ldp plan JOB [FLAGS]

Which mechanism, privacy cost, error and report size to expect, before any data is read: of a
release with these flags, or of each release of a job file (YAML, TOML or JSON) with the flags over
it. A plan takes the flags of its program, and sizes where a program reads them from data; what it
says of the release is what the program's --dry-run says.

Commands:
  convergence    How close a convex training comes to its optimum, by rounds and epsilon.
  frequency      Mechanisms for counting values: of one list, of several, in bins, in groups.
  heavy-hitters  The levels of a search for words, and how rare a word it finds.
  mean           Mechanisms for the mean of vectors, best first.
  mechanisms     All mechanisms, in their own words.
  train          The privacy cost of a training, round by round.
  user-mean      Both rounds of a mean where each person has many rows.

examples:
  beam-ldp plan frequency --expected-users 1e6 --domain-size 1000 --epsilon 1 --delta 1e-8
  beam-ldp plan mean --expected-users 1e5 --dimension 784 --epsilon 1 --delta 1e-8
  beam-ldp plan user-mean --expected-users 1e5 --range 0 1440 --rows-per-user 30 --sigma 60 \\
      --epsilon 1 --delta 1e-8
  beam-ldp plan heavy-hitters --expected-users 1e7 --local-epsilon 6 --delta 1e-8
  beam-ldp plan train --data mnist --local-epsilon 2 --clients-per-round 2000 --epochs 200 \\
      --delta 1e-5
  beam-ldp plan job.yaml
  beam-ldp plan job.yaml --epsilon 0.5 --format json

exit codes: 0 done; 2 a flag is wrong; 3 the target does not allow what is asked
"""
SCHEMA_VERSION = 1
DONE, MISUSED, NOTHING_RELEASED, INTERRUPTED = 0, 2, 3, 130
_OTHERS = ("convergence", "mechanisms")  # of no release
_JOBS = (".yaml", ".yml", ".toml", ".json")


def main(argv: Sequence[str]) -> int:
    """The command; the exit codes are in its help."""
    argv = list(argv)
    if not argv or argv[0] in ("-h", "--help", "--help-all"):
        print(HELP, end="")
        return DONE if argv else MISUSED
    usage, flags = _usage_of(argv[0]), argv[1:]
    helped = print_help(usage, flags) if usage and (flags or usage is not MECHANISMS) else None
    if helped is not None:
        return helped
    from beam_ldp.release.gates import NothingReleasedError  # half the time of a help

    console = Console(stderr=True)
    try:
        return _run(argv[0], flags)
    except SettingError as error:
        code, said = MISUSED, f"error: {error}"
    except NothingReleasedError as error:
        code, said = NOTHING_RELEASED, str(error)
    except KeyboardInterrupt:
        code, said = INTERRUPTED, "interrupted"
    console.print(said, style="red", markup=False, highlight=False, soft_wrap=True)
    return code


def _usage_of(what: str) -> Usage | None:
    found = {"mechanisms": MECHANISMS, "convergence": CONVERGENCE, **PLANS}.get(what)
    if found is None and "." not in what and what not in COMMANDS:
        asked = usage_or_none(job_name(what))  # of another package
        found = over_a_job(asked) if asked is not None and asked.question else None
    return found


def _run(what: str, flags: list[str]) -> int:
    usage = _usage_of(what)
    if usage is not None:
        given = read_flags(usage, flags)
        if usage is MECHANISMS:
            list_mechanisms(given)
        elif usage is CONVERGENCE:
            say_convergence(given)
        else:
            say([plan_of(what, given, usage)], given)
        return DONE
    if not what.endswith(_JOBS):
        from beam_ldp.settings.fields import nearest

        raise SettingError(
            f"no plan {what!r}{nearest(what, [*PLANS, *_OTHERS])}; give one of "
            f"{', '.join([*PLANS, *_OTHERS])}, or a job file"
        )
    jobs = read_job(what, lambda name: read_flags(over_a_job(usage_of(name)), flags))
    plans = [plan_of(name.replace("_", "-"), given, usage_of(name)) for name, given in jobs]
    say(plans, jobs[0][1], what)
    return DONE


def say(plans: Sequence[Plans], given: Arguments, job: str = "") -> None:
    """Draw, and print for people or programs.

    Args:
        plans: of each release.
        given: what was asked for; what is read of it is the same for all releases.
        job: the file that they come from.
    """
    from beam_ldp.release.terminal import printed_json

    asked = given[""]
    workers, price = asked.get("workers"), asked.get("price_per_core_hour")
    if price is not None and workers is None:
        raise SettingError("--price-per-core-hour needs --workers")
    if workers is not None and workers < 1 or price is not None and price < 0:
        raise SettingError("--workers must be >= 1, and --price-per-core-hour >= 0")
    if asked.get("plot") is not None:
        if len(plans) > 1:
            raise SettingError("--plot draws one release; this job has several")
        plans[0].draw(asked["plot"])
    if given["output"].get("format") == "json":
        found = [plan.as_json(workers, price) for plan in plans]
        content = {"job": job, "releases": found} if job else found[0]
        print(printed_json({"schema_version": SCHEMA_VERSION, **content}))
    else:
        for plan in plans:
            plan.show(workers, price)
    sys.stdout.flush()


def plan_of(kind: str, given: Arguments, usage: Usage) -> Plans:
    """The plan of one release. Raises SettingError."""
    makers: dict[str, Callable[[Arguments, Usage], Plans]] = {
        "frequency": _frequency, "mean": _mean, "user-mean": _user_mean,
        "heavy-hitters": _heavy_hitters, "train": _train,
    }  # fmt: skip
    if kind not in makers and (kind in COMMANDS or not usage.question):
        raise SettingError(f"a plan is of {', '.join(makers)}, not of {kind}")
    with Console(stderr=True).status("comparing mechanisms"):  # shown on terminals only
        return makers.get(kind, _any)(_before_data(given), usage)


def _before_data(given: Arguments) -> Arguments:
    """What a plan depends on: it reads, charges, memoizes and writes nothing."""
    kept = {k: v for k, v in given.settings.items() if k not in ("source", "release", "stream")}
    release: dict[str, Any] = {"no_ledger": True}
    release |= {k: v for k, v in given["release"].items() if k in ("seed", "privacy_unit")}
    return Arguments({**kept, "release": release, "": {"only_plan": True}}, [])


def _with(given: Arguments, home: str, **told: Any) -> Arguments:
    """The same with these settings of a section."""
    return Arguments({home: told}, []).over(given)


class PlannedLook:
    """What a plan is told in place of files: sizes of lists, names or number of coordinates.

    Args:
        question: as it was declared.
        sized: whether lists are told by their sizes.
    """

    def __init__(self, question: Any, sized: bool = False) -> None:
        self.question, self.sized = question, sized

    def domain(self, path: str, other: str) -> Any:
        """A size, or the list of a file."""
        from beam_ldp.questions.base import ListSize
        from beam_ldp.release.inputs.public_lists import load_list

        if self.sized:
            return ListSize(int(path) + 1, other)
        return load_list("--domain", path, other, " (see --other-label)")

    def carried(self, domain: Any, other: str = "other") -> Any:
        """Nothing travels."""
        return domain

    def columns(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """Those that are named."""
        return named

    def coordinates(self, columns: Sequence[str], dimension: int | None) -> tuple[list[str], int]:
        """Columns that are named, and numbers per person. Raises SettingError."""
        found = [
            name.strip()
            for names in self.question.column
            for name in names.split(",")
            if name.strip()
        ]
        ranges = self.question.ranges
        if not found and ranges is not None:
            found = list(self.ranges(ranges) if isinstance(ranges, str) else ranges)
        if dimension is not None:
            return found[:dimension], dimension
        if not found or any(set(name) & set("*?[") for name in found):
            raise SettingError("--dimension is missing: how many numbers each person has")
        return found, len(found)

    def ranges(self, path: str) -> Any:
        """Of each column, as a file lists them. Raises SettingError."""
        from beam_ldp.release.job import ranges_in

        return ranges_in(path)


def _planned(given: Arguments, usage: Usage, sized: bool = False) -> PlannedRun:
    """A release before its data. Raises SettingError."""
    from beam_ldp.release.job import checked_job, declared
    from beam_ldp.release.planned import PlannedRun

    job = checked_job(usage, given, declared(usage, given))
    return PlannedRun(usage, job, job.question.bind(job, PlannedLook(job.question, sized)))


def _frequency(given: Arguments, usage: Usage) -> Plans:
    """Lists by their sizes, or as files have them; groups by how many there are."""
    from beam_ldp.pipelines.views.frequency_plans import plans_for
    from beam_ldp.questions.base import ListSize

    sizes, count = given["sizes"].get("domain_size", ()), given["sizes"].get("groups")
    if any(size < 1 for size in sizes):
        raise SettingError("--domain-size must be >= 1")
    if sizes:
        if len(sizes) > 1 and not given["question"].get("column"):
            names = tuple(f"question {i + 1}" for i in range(len(sizes)))
            given = _with(given, "question", column=names)
        given = _with(given, "question", domain=tuple(map(str, sizes)))
    elif not {"domain", "bins"} & set(given["question"]):
        raise SettingError("--domain-size is missing: how many values the public list has")
    run = _planned(_grouped(given), usage, bool(sizes))
    if count is not None:
        run.groups = ListSize(count + 1)
    return plans_for(run)


def _grouped(given: Arguments) -> Arguments:
    """With groups that are told by their number: the smallest one decides about the noise."""
    count, share = given["sizes"].get("groups"), given["sizes"].get("group_share")
    if count is None:
        if share is not None:
            raise SettingError("--group-share needs --groups")
        return given
    share = 1 / max(1, count) if share is None else share
    if not (count >= 1 and 0 < share * count <= 1):
        raise SettingError("--groups must be >= 1, and --group-share > 0 and at most 1 / --groups")
    given = _with(given, "people", group_by="public", groups=f"{count} groups")
    people = given["privacy"].get("expected_users")
    if "min_reports" not in given["shuffle"] and people is not None:
        least = max(1, math.ceil(EXPECTED_SHARE * (share * people)))
        given = _with(given, "shuffle", min_reports=least)
    return given


def _mean(given: Arguments, usage: Usage) -> Plans:
    from beam_ldp.pipelines.views.mean_plans import LEAST_ATTACKED, MeanPlans

    question = given["question"]
    if not {"radius", "range", "ranges"} & set(question) and question.get("norm") != "binary":
        given = _with(given, "question", radius=1.0)
    plans = MeanPlans(_planned(_promised(given, usage), usage), bool(given["sizes"].get("attack")))
    if plans.attacked and plans.asked.dimension < LEAST_ATTACKED:
        raise SettingError("--attack asks for a direction: --dimension must be >= 2")
    return plans


def _promised(given: Arguments, usage: Usage) -> Arguments:
    """Without a delta only the local promise is planned; a central target needs one."""
    from beam_ldp.release.job import need

    privacy = given["privacy"]
    if "delta" not in privacy and "epsilon" not in privacy and "local_epsilon" in privacy:
        return _with(given, "privacy", model="local")
    if privacy.get("model") != "local":
        need(usage, given, "privacy.delta")
    return given


def _user_mean(given: Arguments, usage: Usage) -> Plans:
    from beam_ldp.pipelines.views.plans import Plans

    if not given["question"].get("column") and not given["question"].get("ranges"):
        given = _with(given, "question", dimension=given["question"].get("dimension", 1))
    return Plans(_planned(_promised(given, usage), usage))


def _heavy_hitters(given: Arguments, usage: Usage) -> Plans:
    from beam_ldp.pipelines.views.plans import Plans
    from beam_ldp.release.job import need

    need(usage, given, "privacy.local_epsilon")
    return Plans(_planned(given, usage))


def _any(given: Arguments, usage: Usage) -> Plans:
    """A release of a question that says itself what is needed."""
    from beam_ldp.pipelines.views.plans import Plans

    return Plans(_planned(given, usage))


def _train(given: Arguments, usage: Usage) -> Plans:
    """Of data that is dealt out, or of so many clients of one's own."""
    from beam_ldp.federated.idx import holds_idx
    from beam_ldp.pipelines.views.plans import TrainPlans
    from beam_ldp.training.facts import DataFacts, known_facts
    from beam_ldp.training.plans import make_plan
    from beam_ldp.training.settings import check_train, shape_of
    from beam_ldp.training.usage import BUNDLED

    told, clients = dict(given["training"]), given["sizes"].get("clients")
    if clients is None:
        data = told.get("data", BUNDLED[0])
        if data not in BUNDLED and not holds_idx(data):
            raise SettingError("--clients is missing: how many there are, for files are not read")
        settings = check_train(given)
        return TrainPlans(make_plan(settings, known_facts(settings)))
    shape, classes = shape_of(told.get("shape")), told.get("classes")
    if clients < 1 or shape is None or classes is None or classes < 2:
        raise SettingError("--clients must be >= 1, and needs --shape and --classes (at least 2)")
    of_files = ("features", "label", "client_id", "classes", "shape", "test_data")
    told = {name: value for name, value in told.items() if name not in of_files}
    told["data"] = BUNDLED[0]  # of whose rules about files none is left
    settings = check_train(
        Arguments({"training": told}, []).over(
            Arguments({k: v for k, v in given.settings.items() if k != "training"}, [])
        )
    )
    points = settings.question.points_per_client
    return TrainPlans(make_plan(settings, DataFacts(clients, points, shape, classes, 0)))


def list_mechanisms(given: Arguments) -> None:
    """All mechanisms, in their own words. Raises SettingError."""
    from beam_ldp.pipelines.views.plans import mechanism_table
    from beam_ldp.planning.mechanisms import described, mechanism_of
    from beam_ldp.release.terminal import printed_json

    try:
        for place in given["mechanism"].get("name", ()):
            mechanism_of(place)
    except ValueError as error:
        raise SettingError(str(error)) from None
    rows, form = described(), given[""].get("format")
    if form == "json":
        print(printed_json({"schema_version": SCHEMA_VERSION, "mechanisms": rows}))
    elif form == "markdown":
        for cells in (list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)):
            print(f"| {' | '.join(cells)} |")
    else:
        Console().print(mechanism_table(rows))
    sys.stdout.flush()


def say_convergence(given: Arguments) -> None:
    """How close a convex training comes. Raises SettingError."""
    from beam_ldp.pipelines.views.convergence import Question
    from beam_ldp.release.job import need

    told, privacy = given["convergence"], given["privacy"]
    need(
        CONVERGENCE, given, "convergence.clients", "convergence.clients_per_round",
        "convergence.dimension", "privacy.epsilon", "privacy.delta",
    )  # fmt: skip
    try:
        question = Question.of(told, privacy)
        with Console(stderr=True).status("pricing rounds"):  # shown on terminals only
            found = question.found()
            if given[""].get("plot") is not None:
                question.draw(given[""]["plot"], found)
    except ValueError as error:
        name, _, rule = str(error).partition(" ")
        flags = {field: about.flag for _, field, about in CONVERGENCE}
        flag = flags.get({"points": "points_per_client"}.get(name, name))
        raise SettingError(f"--{flag} {rule}" if flag else str(error)) from None
    question.say(found, given["output"].get("format") == "json")
    sys.stdout.flush()
