"""Programs as rows of a comparison."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnnbench import comparison
from gnnbench.comparison.frame import RunState
from gnnbench.comparison.request import Request
from gnnbench.errors import UsageError
from gnnbench.host.rank import Place
from gnnbench.jobs.job import Job
from gnnbench.parts import Setting
from gnnbench.plugins import Registry
from gnnbench.programs.files import is_file, read_program
from gnnbench.programs.references import References
from gnnbench.programs.run import AnyProgram, ProgramSteps, make_task
from gnnbench.programs.sessions import describe_origin
from gnnbench.programs.task_folder import TaskFolders
from gnnbench.records import CommandProgram, Mode, Program, ProgramOrigin


def find_program(given: object, registry: Registry) -> AnyProgram:
    """Return the program of a TOML file, the offered one of a name, or a given one.

    A file or a name may have options behind it, as in ``"dgl-loop:workers=2"``.
    Raises ``UsageError`` and ``PluginError``.
    """
    if isinstance(given, CommandProgram) or (
        isinstance(given, type) and issubclass(given, Program)
    ):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise UsageError(
            f"{given!r} is no program; give a name, a TOML file, or a class derived from "
            f"gnnbench.programs.Program."
        )
    name, options = split_options(os.fspath(given))
    found = read_program(Path(name)) if is_file(name) else registry.program(name)
    return choose_options(found, options) if options else found


def split_options(given: str) -> tuple[str, str]:
    """Split ``"dgl-loop:workers=2"`` into the program's name and the text of its options."""
    name, colon, options = given.rpartition(":")
    return (name, options) if colon and "=" in options else (given, "")


def choose_options(program: AnyProgram, text: str) -> CommandProgram:
    """Return a program with options such as ``"workers=2,stages=1"``, which its name then shows.

    Raises ``UsageError``.
    """
    known = program.options if isinstance(program, CommandProgram) else {}
    if not isinstance(program, CommandProgram) or not known:
        raise UsageError(f"program {program.name!r} has no options; leave {text!r} out.")
    chosen = dict(known)
    for option in text.split(","):
        name, _, value = option.partition("=")
        if name not in known:
            raise UsageError(
                f"program {program.name!r} has no option {name!r}; its options are "
                f"{', '.join(known)}."
            )
        if not value.isdecimal():
            raise UsageError(
                f"option {name} of program {program.name!r} is {value!r}; give a whole number."
            )
        chosen[name] = int(value)
    return replace(program, name=f"{program.name}:{text}", options=chosen)


def make_request(
    job: Job,
    registry: Registry,
    demanded: tuple[str, ...] = (),
    place: Place | None = None,
) -> Request:
    """Make the request of a job as ``comparison.make_request`` does, with its programs.

    Raises ``UsageError`` and ``PluginError``.
    """
    found = [find_program(each, registry) for each in job.programs]
    request = comparison.make_request(job, registry, demanded, place)
    return replace(request, programs=ProgramRows(found, registry)) if found else request


def describe_content(program: AnyProgram) -> tuple[str, tuple[Path, ...]]:
    """Return a text of everything that a program states, and the files that its command names."""
    if not isinstance(program, CommandProgram):
        return f"{program.__module__}.{program.__qualname__}", (Path(inspect.getfile(program)),)
    files = (Path(program.folder, word) for word in program.fill())
    return repr(program), tuple(file for file in files if file.is_file())


class ProgramRows:
    """The programs of a comparison, with the task folders and references that they share."""

    def __init__(self, programs: Sequence[AnyProgram], registry: Registry) -> None:
        names = [program.name for program in programs]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"program {name!r} is named twice; name it once.")
        self._programs = tuple(programs)
        self._references = References(registry)
        self._folders = TaskFolders()

    def list_rows(self, modes: Sequence[Mode]) -> tuple[ProgramRow, ...]:
        """Return the rows in these modes; without modes, in each program's first mode.

        A program that trains in none of the modes has a row that says so.
        """
        rows = []
        for program in self._programs:
            own = [mode for mode in modes if mode in program.modes]
            for mode in own or modes or program.modes[:1]:
                rows.append(ProgramRow(program, mode, self._folders, self._references))
        return tuple(rows)

    def close(self) -> None:
        """Remove the task folders."""
        self._folders.close()


@dataclass(frozen=True, slots=True, eq=False)
class ProgramRow:
    """A program in one mode."""

    program: AnyProgram
    mode: Mode
    folders: TaskFolders
    references: References
    parts: None = None
    plain: bool = False
    swapped: bool = False

    @property
    def strategy(self) -> str:
        """The program's name, which stands where other rows have their strategy's."""
        return self.program.name

    @property
    def label(self) -> str:
        """The program's name in tables."""
        return self.program.name

    @property
    def origin(self) -> ProgramOrigin:
        """The program as results name it."""
        return describe_origin(self.program)

    def refusal(self, setting: Setting) -> str | None:
        """Return why the program cannot run in a setting; None if it can."""
        workload, program = setting.workload, self.program
        if self.mode not in program.modes:
            return f"it trains {' and '.join(program.modes)} only; leave --mode {self.mode} out."
        if workload.model not in program.models:
            return (
                f"it does not train model {workload.model!r}; its models are "
                f"{', '.join(program.models)}."
            )
        if setting.platform.virtual:
            return (
                f"platform {setting.platform.name} is modelled, and a whole program is only timed "
                f"on this machine; choose --platform local."
            )
        if isinstance(program, CommandProgram):
            return None
        return program().refuses(make_task(setting, self.mode))

    def identify(self) -> str:
        """Return a text that changes with the program and the files that its command names."""
        text, files = describe_content(self.program)
        stats = [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in files]
        return f"{text} {self.mode} {stats}"

    def make_steps(self, state: RunState) -> ProgramSteps:
        """Return the steps of a run of the program, which is not open yet."""
        return ProgramSteps(state, self)
