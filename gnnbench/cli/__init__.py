"""The command line. Each command imports its modules when it runs, so that ``--help`` is instant.

Exit status: 0 done; 1 a check failed; 2 wrong usage; 3 a run failed; 4 nothing ran. After a signal
the status is 130 (interrupted), 143 (terminated) or 129 (its terminal was closed). An error is one
sentence on standard error; ``--debug`` also shows its traceback.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import click

from gnnbench import __version__
from gnnbench.cli.ablate import ablate
from gnnbench.cli.advise import advise
from gnnbench.cli.compare import compare
from gnnbench.cli.datasets import datasets
from gnnbench.cli.matrix import matrix
from gnnbench.cli.options import CommandLine, voice_options
from gnnbench.cli.plan import plan
from gnnbench.cli.platforms import platforms
from gnnbench.cli.plugins import plugins
from gnnbench.cli.programs import programs
from gnnbench.cli.progress import StatusLine
from gnnbench.cli.reproduce import reproduce
from gnnbench.cli.screen import complain, escape, guarded_output
from gnnbench.cli.sweep import report, run_configuration, sweep
from gnnbench.errors import GnnbenchError, Interrupted, is_host_memory_error
from gnnbench.host import signals
from gnnbench.host.files import explain, is_full
from gnnbench.host.progress import shown_by
from gnnbench.host.waiting import wait_briefly


class UnexpectedEndError(Exception):
    """An ``EOFError``, which click would treat as an interrupt."""


class Program(click.Group):
    """The root command: turns every outcome into an exit status and at most one sentence."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that the context names."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise UnexpectedEndError(*error.args) from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: object,
    ) -> NoReturn:
        """Run the command line and exit; inside, click's ``standalone_mode`` is always off."""
        wait_briefly()  # before anything imports torch
        arguments = list(sys.argv[1:] if args is None else args)
        line = CommandLine(("gnnbench", *arguments))
        run = partial(
            super().main,
            arguments,
            prog_name or "gnnbench",
            complete_var,
            standalone_mode=False,
            windows_expand_args=windows_expand_args,
            obj=line,
            **extra,
        )
        sys.exit(exit_status_of(run, line))


def exit_status_of(run: Callable[[], object], line: CommandLine) -> int:
    """Return the exit status of ``run``; an error that it raises is printed as one sentence."""
    signals.hint_by(lambda: "")  # of an earlier command in this process
    try:
        with guarded_output(), StatusLine(line.name) as status_line, shown_by(status_line):
            status = run()
    except (click.Abort, KeyboardInterrupt) as error:
        # click turns a KeyboardInterrupt into an Abort.
        return _say_interrupted(error.__cause__ if isinstance(error, click.Abort) else error)
    except Exception as error:
        # A library may turn an interrupt into another error.
        if signals.has_come():
            return _say_interrupted(error)
        return _say_error(error, line)
    if signals.has_come():
        return signals.say()
    return status if isinstance(status, int) else 0


def _say_interrupted(error: BaseException | None) -> int:
    where = str(error) if isinstance(error, Interrupted) else "interrupted."
    return signals.say(where.removeprefix("interrupted").removesuffix("."))


def _say_error(error: Exception, line: CommandLine) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.ctx.get_help() if error.ctx else error.format_message(), err=True)
        return 2
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "gnnbench"
        _complain(f"{_sentence(error.format_message())} See '{path} --help'.")
        return 2
    if isinstance(error, click.ClickException):
        _complain(_sentence(error.format_message()))
        return 2
    if line.debug:
        _print_traceback(error)
    if isinstance(error, GnnbenchError):
        _complain(" ".join(str(error).split()))
        return error.exit_status
    hint = "" if line.debug else " Run again with --debug for the traceback."
    message = " ".join(str(error).split())
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    if is_host_memory_error(error):
        _complain(
            f"this machine has not enough memory for what was asked for{_in_brackets(error)}; "
            f"ask for a smaller graph, or fewer and narrower layers.{hint}"
        )
        return 3
    if isinstance(error, OSError) and is_full(error):
        _complain(
            f"a file could not be written: {explain(error)}; free some of the disk, or set TMPDIR "
            f"to a folder on another one.{hint}"
        )
        return 3
    _complain(f"unexpected {_sentence(what)}{hint}")
    return 3


def _complain(text: str) -> None:
    complain(f"error: {text}")


def _print_traceback(error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    click.echo(escape(text, keep="\n"), nl=False, err=True)


def _in_brackets(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return f" ({text})" if text else ""


def _sentence(text: str) -> str:
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!")) else f"{line}."


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gnnbench")
@voice_options
def main() -> None:
    """Compare GNN training systems: which strategy wins on this graph, model and machine."""


main.add_command(compare)
main.add_command(ablate)
main.add_command(plugins)
main.add_command(programs)
main.add_command(datasets)
main.add_command(platforms)
main.add_command(plan)
main.add_command(matrix)
main.add_command(advise)
main.add_command(reproduce)
main.add_command(sweep)
main.add_command(run_configuration)
main.add_command(report)
