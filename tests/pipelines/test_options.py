"""Flags: read strictly, every mistake named, Beam's own understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability.api import beam_job_api_pb2 as messages
from apache_beam.portability.api import beam_job_api_pb2_grpc as services

from beam_ldp.pipelines.flags import help_text, read_flags
from beam_ldp.pipelines.programs import DONE, MISUSED
from beam_ldp.pipelines.usage.plan import CONVERGENCE, MECHANISMS, PLANS
from beam_ldp.release.beam_job import IN_PROCESS_RUNNER, BudgetOptions, pipeline_flags
from beam_ldp.release.binding import bound
from beam_ldp.release.commands import PROGRAMS, usage_of
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms import servers

USAGE = usage_of("frequency")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "x.csv").write_text("u,v\n1,a\n")
    (tmp_path / "domain.txt").write_text("a\nb\n")
    return [f"--input={tmp_path}/x.csv", f"--domain={tmp_path}/domain.txt", "--column=v",
            "--delta=1e-8", f"--output={tmp_path}/out"]  # fmt: skip


CENTRAL = ["--epsilon=1", "--expected-users=1e6"]


def parse_flags(flags: list[str]) -> Arguments:
    return read_flags(USAGE, flags)


def settings_of(flags: list[str]) -> Job:
    return bound(USAGE, parse_flags(flags)).job


# Parsing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("--epsilom=1", "--epsilon"),
        ("--expected-user=5", "--expected-users"),
        ("--runer=x", "--runner"),
        ("--user_idd=x", "--user-id"),
        ("--direct_num_worker=2", "--direct_num_workers"),
    ],
)
def test_an_unknown_flag_is_an_error_that_names_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(SettingError, match=rf"unknown flag .*did you mean {meant}"):
        parse_flags([wrong])


def test_a_flag_far_from_all_others_is_an_error_too() -> None:
    with pytest.raises(SettingError, match="unknown flag --qqqqqq$"):
        parse_flags(["--qqqqqq"])


@pytest.mark.parametrize("abbreviation", ["--eps", "--in", "--expected"])
def test_abbreviations_are_not_guessed(abbreviation: str) -> None:
    with pytest.raises(SettingError, match="unknown flag"):
        parse_flags([abbreviation, "1"])


def test_a_stray_word_is_an_error() -> None:
    with pytest.raises(SettingError, match="stray"):
        parse_flags(["--epsilon=1", "stray"])


def test_beams_flags_are_understood_and_its_dry_run_stays_its_own(files: list[str]) -> None:
    flags = [*files, *CENTRAL, "--runner=SparkRunner", "--job_endpoint=host:8099", "--dry_run=True",
             "--environment_type=LOOPBACK"]  # fmt: skip
    settings = settings_of(flags)
    assert not settings.only_plan
    assert PipelineOptions(flags).view_as(PortableOptions).job_endpoint == "host:8099"
    assert settings_of([*files, *CENTRAL, "--dry-run"]).only_plan


def test_our_flags_stay_ours() -> None:
    """Beam is given its own flags alone: nothing of ours stands in a job graph."""
    given = parse_flags(["--epsilon=2", "--runner=FnApiRunner", "--memoize-key-file=secret"])
    assert given.beam_flags == ["--runner=FnApiRunner"]
    assert PipelineOptions(given.beam_flags).get_all_options()["runner"] == "FnApiRunner"


def test_the_budget_flags_of_pipelines_of_ones_own_are_beams_options() -> None:
    flags = ["--ledger=x", "--no-ledger", "--budget_windows=1e2", "--honest-fraction=0.5"]
    found = PipelineOptions(flags).view_as(BudgetOptions)
    assert (found.ledger, found.no_ledger, found.budget_windows) == ("x", True, 100)
    assert found.honest_fraction == 0.5 and found.dataset == "" and found.privacy_unit == "user"


def test_underscores_are_dashes(files: list[str]) -> None:
    settings = settings_of([*files, "--local_epsilon=2", "--min_reports=5", "--user_id=u"])
    assert (settings.privacy.local_epsilon, settings.min_reports) == (2.0, 5)
    assert settings.people.id == "u"


@pytest.mark.parametrize("flag", ["--epsilon=-1", "--epsilon=0", "--epsilon=nan", "--epsilon=inf",
                                  "--epsilon=x", "--expected-users=1.5", "--seed=x",
                                  "--bad-rows=drop", "--scope=all", "--format=xml"])  # fmt: skip
def test_a_value_of_the_wrong_kind_names_its_flag(flag: str) -> None:
    with pytest.raises(SettingError, match=flag.split("=")[0]):
        parse_flags([flag])


@pytest.mark.parametrize(
    ("program", "shown", "hidden"),
    [
        ("frequency", "--expected-users --runner=SparkRunner", "--ranges"),
        ("mean", "--ranges", "--domain"),
        ("heavy_hitters", "--max-bytes --code-bits --false-words --assignment --user-id",
         "--mechanism --shuffle-output"),
        ("user_mean", "--rows-per-user --sigma --user-sigma --outliers --split --column",
         "--mechanism"),
        ("randomize", "--release-id", "--ledger"),
        ("collect", "--release", "--column"),
        ("train", "--epsilon --baselines", "--domain"),
    ],
)  # fmt: skip
def test_help_teaches(program: str, shown: str, hidden: str, capsys: Any) -> None:
    """Of every program; without a flag it is misused."""
    main = import_module(f"beam_ldp.pipelines.{program}").main
    assert main(["--help-all"]) == DONE
    said = capsys.readouterr().out
    for expected in ("examples:", "exit codes:", "130 interrupted", *shown.split()):
        assert expected in said, expected
    assert not [flag for flag in hidden.split() if f"  {flag} " in said]
    assert main([]) == MISUSED


@pytest.mark.parametrize(
    "program",
    ["frequency", "mean", "user_mean", "heavy_hitters", "randomize", "collect", "train"],
)
def test_help_shows_what_one_needs_and_help_all_the_rest(program: str) -> None:
    usage = usage_of(program)
    few = help_text(usage).split("examples:")[0]
    every = help_text(usage, everything=True)
    basic = {about.flag for _, _, about in usage if about.basic}
    assert 8 <= len(basic) <= 20
    for _, _, about in usage:
        shown = re.search(rf"^  --{about.flag}\b(?!-)", few, re.M) is not None
        assert shown == (about.flag in basic), about.flag
        assert f"--{about.flag}" in every
    assert "{" not in every.split("examples:")[0] and "the rest" not in few and "--help-all" in few


USAGES = {
    found.name: found
    for found in (*map(usage_of, PROGRAMS), *PLANS.values(), MECHANISMS, CONVERGENCE)
}


@pytest.mark.parametrize("program", sorted(USAGES))
def test_help_names_no_setting_that_the_program_lacks(program: str) -> None:
    """Settings are shared by programs, and what one says of another must be there."""
    assert len(USAGES) >= 18
    told = " ".join(help_text(USAGES[program], everything=True).split())
    names = {f"{part.home}.{name}" for usage in USAGES.values() for part, name, _ in usage}
    assert "release.key_file" in names
    assert not [name for name in (*names, "[[", "]]") if name in told]


# Rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["input", "domain", "delta", "output"])
def test_what_is_needed_is_named(files: list[str], name: str) -> None:
    kept = [flag for flag in files if not flag.startswith(f"--{name}=")]
    with pytest.raises(SettingError, match=f"--{name} is missing"):
        settings_of([*kept, *CENTRAL])


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ([], "one of --epsilon .* and --local-epsilon"),
        (["--epsilon=1", "--local-epsilon=1", "--expected-users=9"], "one of --epsilon"),
        (["--epsilon=1"], "--epsilon needs --expected-users"),
        (["--local-epsilon=1"], "--expected-users or --min-reports"),
        ([*CENTRAL, "--delta=0"], "--delta must lie in"),
        ([*CENTRAL, "--delta=1"], "--delta must lie in"),
        ([*CENTRAL, "--honest-fraction=0"], "--honest-fraction"),
        ([*CENTRAL, "--honest-fraction=1.1"], "--honest-fraction"),
        (["--local-epsilon=1", "--min-reports=0"], "--min-reports"),
        (["--local-epsilon=1", "--min-reports=5", "--allow-over-target"], "needs --epsilon"),
        ([*CENTRAL, "--expected-users=0"], "--expected-users"),
        ([*CENTRAL, "--max-bad-rows=-1"], "--max-bad-rows"),
        ([*CENTRAL, "--max-bits=0"], "--max-bits"),
        ([*CENTRAL, "--seed=-1"], "--seed"),
        ([*CENTRAL, "--top=0"], "--top"),
        ([*CENTRAL, "--csv-delimiter=ab"], "--csv-delimiter"),
        ([*CENTRAL, "--input-format=jsonl", "--csv-delimiter=;"], "is for CSV, and .* is jsonl"),
        ([*CENTRAL, "--quota=maps"], "--quota needs --ledger"),
        ([*CENTRAL, "--csv-delimiter=§"], "--csv-delimiter must be one ASCII character"),
        ([*CENTRAL, '--csv-delimiter="'], "--csv-delimiter must be one ASCII character"),
        ([*CENTRAL, "--ledger=sqlite:///x.db"], "--dataset must name the data set"),
        ([*CENTRAL, "--ledger=sqlite:///x.db", "--no-ledger"], "exclude each other"),
        ([*CENTRAL, "--ledger=sqlite:///x.db", "--dataset=d"], "with --user-id, or declare"),
        ([*CENTRAL, "--user-id=u", "--one-row-per-person"], "exclude each other"),
        ([*CENTRAL, "--max-local-epsilon=2", "--honest-fraction=nan"], "--honest-fraction"),
        (["--local-epsilon=9", "--min-reports=5"], "--local-epsilon must be at most 8, got 9"),
        (["--local-epsilon=9", "--min-reports=5"], "8,103 to 1. Choose less, or allow it with --m"),
        (["--local-epsilon=3", "--max-local-epsilon=2", "--min-reports=5"], "at most 2, got 3"),
        ([*CENTRAL, "--max-local-epsilon=12.1"], "above 12 needs --trust-shuffler"),
        (["--local-epsilon=60", "--min-reports=5"], "allow it with --trust-shuffler"),
        ([*CENTRAL, "--budget-windows=2"], "--budget-windows must be 1 here"),
        ([*CENTRAL, "--people-store=d"], "belong together"),
        ([*CENTRAL, "--memoize-key-file=k"], "--user-id and --release-id"),
        ([*CENTRAL, "--memoize-key-file=k", "--user-id=u", "--release-id=r"], "needs --dataset"),
        ([*CENTRAL, "--memoize-key-file=k", "--user-id=u", "--release-id=r", "--dataset=d",
          "--seed=1"],
         "exclude each other"),
        ([*CENTRAL, "--input-format=text"], "cannot be used with text"),
        ([*CENTRAL, "--input=nowhere-at-all.csv"], "--input nowhere-at-all.csv: no file matches"),
    ],
)  # fmt: skip
def test_rules(files: list[str], extra: list[str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        settings_of([*files, *extra])


def test_defaults(files: list[str]) -> None:
    settings = settings_of([*files, *CENTRAL])
    assert settings.min_reports == 900_000
    assert settings.source.format == "csv" and settings.source.delimiter == ","
    assert settings.shuffle.output == "statistic" and settings.question.bad_rows == "dead-letter"
    assert settings.dataset == "unnamed" and settings.question.name == "v"
    assert settings.num_files == 1 and settings.input_bytes == 8


@pytest.mark.parametrize(("expected", "least"), [(1, 1), (2, 2), (11, 10), (15, 14), (20, 18)])
def test_nine_tenths_of_the_people_are_rounded_up(
    files: list[str], expected: int, least: int
) -> None:
    settings = settings_of([*files, "--epsilon=1", f"--expected-users={expected}"])
    assert settings.min_reports == least


def test_mixed_endings_need_a_format(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "y.jsonl").write_text("{}")
    flags = [*files, *CENTRAL, f"--input={tmp_path}/y.jsonl"]
    with pytest.raises(SettingError, match="--input-format must be given"):
        settings_of(flags)
    assert settings_of([*flags, "--input-format=jsonl"]).num_files == 2


def test_tabs_by_ending(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("u\tv\n")
    flags = [f for f in files if not f.startswith("--input")] + [f"--input={tmp_path}/x.tsv"]
    assert settings_of([*flags, *CENTRAL]).source.delimiter == "\t"


# Runners ----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [[], ["--runner=DirectRunner"], ["--runner", "FnApiRunner"]])
def test_the_local_runner_is_named_so_that_nothing_is_downloaded(
    files: list[str], given: list[str]
) -> None:
    flags = pipeline_flags(settings_of([*files, *CENTRAL]), given)
    runners = [flag for flag in flags if flag.startswith("--runner")]
    assert runners[-1] == f"--runner={IN_PROCESS_RUNNER}"


def test_a_named_engine_is_kept(files: list[str]) -> None:
    given = ["--runner=FlinkRunner", "--parallelism=2"]
    found = pipeline_flags(settings_of([*files, *CENTRAL]), given)
    assert found == [*given, "--no_save_main_session"]


@pytest.mark.parametrize("given", ["--save_main_session", "--no_save_main_session"])
def test_the_main_session_is_sent_only_to_who_asks_for_it(files: list[str], given: str) -> None:
    found = pipeline_flags(settings_of([*files, *CENTRAL]), [given])
    assert [flag for flag in found if "main_session" in flag] == [given]


# A job server's own flags ------------------------------------------------------------------


@pytest.fixture
def job_server() -> Iterator[str]:
    """A server that only says which flags it takes."""
    import grpc

    class Server(services.JobServiceServicer):
        def DescribePipelineOptions(self, request, context):  # noqa: N802
            kinds = messages.PipelineOptionType
            told = {"number_of_execution_retries": kinds.INTEGER, "reuse": kinds.BOOLEAN,
                    "files": kinds.ARRAY, "runner": kinds.STRING}  # fmt: skip
            described = [
                messages.PipelineOptionDescriptor(name=name, type=kind)
                for name, kind in told.items()
            ]
            return messages.DescribePipelineOptionsResponse(options=described)

    server = grpc.server(ThreadPoolExecutor(2))
    services.add_JobServiceServicer_to_server(Server(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    yield f"localhost:{port}"
    server.stop(None).wait()


def test_flags_of_the_job_server_are_taken(files: list[str], job_server: str) -> None:
    """Known by asking it; others are still errors, and without a job server all are."""
    theirs = ["--number_of_execution_retries=3", "--reuse", "--files=a", "--files=b"]
    flags = [*files, *CENTRAL, *theirs]
    given = parse_flags([*flags, f"--job_endpoint={job_server}"])
    assert set(theirs) <= set(given.beam_flags)
    with pytest.raises(SettingError, match="unknown flag --number_of_execution_retries"):
        parse_flags(flags)
    with pytest.raises(SettingError, match="did you mean --number_of_execution_retries"):
        parse_flags([*files, *CENTRAL, f"--job_endpoint={job_server}", "--number_of_retries=3"])


def test_a_flag_of_a_job_server_that_is_not_there_says_so(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "ANSWER_SECONDS", 0.3)
    with pytest.raises(SettingError, match="--job_endpoint localhost:1: no server answered"):
        parse_flags([*files, *CENTRAL, "--job_endpoint=localhost:1", "--reuse"])
