"""`--stream` of any command that takes it: files keep arriving, one window after another comes."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from beam_ldp.pipelines.programs import DONE, FAILED, Program
from beam_ldp.release.job import section_from
from beam_ldp.settings import SettingError
from beam_ldp.settings.streaming import Streaming
from beam_ldp.settings.usage import Arguments, Usage


def with_stream(once: Program) -> Program:
    """The program that streams where it is asked to, and else does what it did."""
    usage = once.usage

    def run(given: Arguments, console: Console) -> int:
        streamed = _is_streamed(usage, given)
        return run_stream(usage, given, console) if streamed else once.run(given, console)

    def check(given: Arguments) -> Any:
        if not _is_streamed(usage, given):
            return once.check(given)
        from beam_ldp.release.streams.job import stream_of

        return stream_of(usage, given).preflight(given.beam_flags)

    return Program(usage, run, check, once.bind)


def _is_streamed(usage: Usage, given: Arguments) -> bool:
    """Whether files keep arriving. Raises SettingError."""
    stream = section_from(given, usage, "stream", Streaming)
    told = [name for name in given["stream"] if name != "on"]
    if told and not stream.on:
        raise SettingError(f"{usage.flag_of(f'stream.{told[0]}')} needs --stream")
    return bool(stream.on)


def run_stream(usage: Usage, given: Arguments, console: Console) -> int:
    """The program as it was told; the exit codes are those of one release."""
    from beam_ldp.release import runner, terminal
    from beam_ldp.release.checks import check_first
    from beam_ldp.release.streams.job import stream_of
    from beam_ldp.release.streams.run import UNREADABLE, execute

    job = stream_of(usage, given)
    told = job.preflight(given.beam_flags)
    if job.job.only_plan:
        runner.say_plan(job.run, told)
        return DONE
    check_first(told, console)
    runner.say_plan_line(job.run, console)
    found = execute(job, given.beam_flags, console)
    if job.job.output.format == "json":
        print(terminal.printed_json(found))
    return FAILED if found["ended"].startswith(UNREADABLE) else DONE
