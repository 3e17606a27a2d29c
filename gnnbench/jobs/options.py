"""Options as fields of records: what the command line, Python and sweeps derive from them.

A field ``name: Annotated[Type, Option(...)] = default`` declares an option. The field states its
name, its type and its default, and ``Option`` holds everything else.
"""

from __future__ import annotations

import inspect
import re
import shlex
import textwrap
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, wraps
from typing import Any, ForwardRef, Literal, ParamSpec, TypeVar, get_args

from gnnbench.errors import UsageError
from gnnbench.jobs.limits import Rule, read_value

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
#: The columns of a docstring.
_WIDTH = 92


@dataclass(frozen=True, slots=True)
class Sweep:
    """How the file of a sweep gives an option.

    ``key`` is the option's name in the file, and ``kept`` in kept results. ``lists`` says whether
    the file may, or must, list several values. ``default`` replaces the default of the option, if
    it is not an ellipsis.
    """

    lists: Literal["never", "may", "must"] = "never"
    key: str = ""
    kept: str = ""
    default: object = ...


@dataclass(frozen=True, slots=True)
class Option:
    """The meaning, the limits and the spellings of an option.

    ``meaning`` is the help text, ``usual`` describes the default if it is None or depends on the
    run, and ``by_command`` has either text for commands in which it differs. ``flag`` is the
    spelling on the command line, by default ``--name``. An upper-case ``flag`` is an
    argument, and an option with None exists in Python alone. With ``repeated`` it may be given
    several times. A flag that is true by default is ``--no-NAME``, which ``negated`` explains.
    ``commands`` are the only ones that take it, by default all that take the record.
    ``only_in`` is the only mode in which it has an effect. Without ``sweep`` it is no key of
    sweeps. ``typed`` is the rule on the command line, if that takes less.
    """

    meaning: str
    rule: Rule
    usual: str | Mapping[tuple[str, ...], str] = ""
    by_command: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    flag: str | None = ""
    metavar: str | None = None
    repeated: bool = False
    negated: str = ""
    commands: tuple[str, ...] = ()
    only_in: str = ""
    sweep: Sweep | None = None
    typed: Rule | None = None

    def explain(self, command: str = "") -> tuple[str, str]:
        """Return the meaning in a command, and the description of the default."""
        usual = self.usual if isinstance(self.usual, str) else _pick(self.usual, command, "")
        return _pick(self.by_command, command, self.meaning), usual


def _pick(texts: Mapping[tuple[str, ...], str], command: str, default: str) -> str:
    return next((text for commands, text in texts.items() if command in commands), default)


@dataclass(frozen=True, slots=True)
class Declared:
    """An option with what its field says."""

    name: str
    type: Any
    default: Any
    positional: bool
    option: Option = field(repr=False)

    @property
    def flag(self) -> str | None:
        """The spelling on the command line."""
        no = "no-" if self.option.negated else ""
        return self.option.flag or (
            None if self.option.flag is None else f"--{no}{self.name.replace('_', '-')}"
        )


@cache
def list_options(record: type) -> Mapping[str, Declared]:
    """Return the options of a record by name, in the order of its parameters."""
    found = {}
    for each in sorted(fields(record), key=lambda each: each.kw_only is True):
        kind, *notes = get_args(each.type) or (each.type,)
        for option in notes:
            if isinstance(option, Option):
                found[each.name] = Declared(each.name, kind, each.default, not each.kw_only, option)
    return found


def read_record(record: object, required: Collection[str] = ()) -> None:
    """Replace the values of a record's options by what their rules read.

    An option that is not ``required`` keeps the default None. Raises ``UsageError``.
    """
    kind: type = type(record)
    for name, each in list_options(kind).items():
        value = getattr(record, name)
        if value is not None or each.default is not None or name in required:
            object.__setattr__(record, name, read_value(name, each.option.rule, value))


def defaults(**others: object) -> Callable[[type[T]], type[T]]:
    """Give inherited options of a record other defaults; applied before ``dataclass``."""

    def change(record: type[T]) -> type[T]:
        inherited = {each.name: each for base in record.__bases__ for each in fields(base)}
        kinds = {name: inherited[name].type for name in others}
        record.__annotations__ = {**kinds, **inspect.get_annotations(record)}
        for name, value in others.items():
            setattr(record, name, field(default=value, kw_only=inherited[name].kw_only))
        return record

    return change


class OptionConflictError(UsageError):
    """Options that exclude each other; ``text`` has their names in braces."""

    def __init__(self, text: str) -> None:
        super().__init__(re.sub(r"[{}]", "", text))
        self.text = text

    def spell(self, record: type) -> str:
        """Return the sentence with the options as the command line spells them."""
        options = list_options(record)
        return re.sub(r"\{(\w+)\}", lambda found: options[found[1]].flag or found[1], self.text)


def spell_command(command: str, record: type, given: Mapping[str, object]) -> str:
    """Return the command line of some options of a record, by name: ``"gnnbench plan dgl ..."``."""
    words = ["gnnbench", command]
    for each in list_options(record).values():
        value = given.get(each.name)
        if value is None or value == ():
            continue
        values = value if isinstance(value, tuple) and each.option.repeated else (value,)
        for one in values:
            text = ",".join(map(str, one)) if isinstance(one, tuple) else str(one)
            flag = each.flag or ""
            words += [text] if flag.isupper() and not flag.startswith("-") else [flag, text]
    return shlex.join(words)


def list_bound(record: type, given: Collection[str]) -> list[Declared]:
    """Return the ``given`` options that have an effect in one mode only."""
    return [
        each for each in list_options(record).values() if each.option.only_in and each.name in given
    ]


def asks(
    record: Callable[P, R],
) -> Callable[[Callable[[R, Collection[str]], T]], Callable[P, T]]:
    """Give a function the parameters of a record, with their types and defaults.

    The function itself takes the record, and the names of the parameters that the caller gave.
    """
    assert isinstance(record, type)
    options = list_options(record)
    signature = inspect.Signature([_make_parameter(each) for each in options.values()])

    def decorate(function: Callable[[R, Collection[str]], T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            names = frozenset(name for name, value in given.items() if value is not None)
            job = record(*args, **kwargs)
            return function(job, names)

        returns = function.__annotations__["return"]
        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            return_annotation=returns
        )
        call.__doc__ = _document(inspect.getdoc(function) or "", function.__name__, options)
        return call

    return decorate


def _make_parameter(declared: Declared) -> inspect.Parameter:
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(
        declared.name,
        kinds[not declared.positional],
        default=inspect.Parameter.empty if declared.default is MISSING else declared.default,
        annotation=_name_type(declared.type),
    )


def _name_type(kind: Any) -> str:
    if isinstance(kind, ForwardRef):
        return kind.__forward_arg__
    return inspect.formatannotation(kind).replace("collections.abc.", "")


def _document(text: str, command: str, options: Mapping[str, Declared]) -> str:
    """Return a docstring with a section on parameters behind its first paragraphs."""
    lines = [text, "", "Parameters", "----------"]
    for each in options.values():
        meaning, usual = each.option.explain(command)
        lines.append(f"{each.name} : {_name_type(each.type)}")
        said = f"{meaning} Default: {usual}." if usual else meaning
        lines += textwrap.wrap(said, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)
