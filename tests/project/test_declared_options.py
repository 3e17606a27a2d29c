"""Each option is declared once, by a field of a job record; all else is derived from it."""

import ast
import inspect
import re
from collections import Counter
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import gnnbench
from gnnbench.cli import main
from gnnbench.cli.options import takes
from gnnbench.jobs.groups import Spread
from gnnbench.jobs.job import AdviceJob, Job, PlanJob
from gnnbench.jobs.options import asks, list_options
from gnnbench.report.results.schema import ResultDocument
from gnnbench.sweep.grid import KEYS, SweepTable
from tests.project.more_options import MoreJob

SOURCES = Path(gnnbench.__file__).parent
#: Where the command line, Python, sweeps, requests and results might declare an option again.
ROOMS = (
    "cli",
    "api.py",
    "jobs",
    "sweep",
    "comparison/request.py",
    "advice/documents.py",
    "report/results/schema.py",
)
#: By command, the record of its options. Three of the commands are functions of Python too.
RECORDS = {"compare": Job, "ablate": Job, "plan": PlanJob, "advise": AdviceJob, "matrix": AdviceJob}
OPTIONS = {
    name: each
    for record in (*RECORDS.values(), Spread)
    for name, each in list_options(record).items()
}
SPELLINGS = {
    spelling: name for name, each in OPTIONS.items() for spelling in (each.flag or "").split("/")
}
#: Fields that hold what an option was resolved to: objects that were found, and facts of a row.
RESOLVED = {
    "comparison/request.py Variant.strategy",
    "comparison/request.py Request.strategies",
    "comparison/request.py Request.dataset",
    "comparison/request.py Request.platform",
    "comparison/request.py Request.options",
    "comparison/request.py Request.programs",
    "comparison/request.py PlannedRow.strategy",
    "comparison/request.py PlannedRow.mode",
    "comparison/request.py PlannedRow.plain",
    "comparison/request.py PlannedRow.options",
    "report/results/schema.py MachineEntry.threads",
    "report/results/schema.py RowEntry.strategy",
    "report/results/schema.py RowEntry.mode",
    "report/results/schema.py WorkEntry.edges",
    "report/results/schema.py ResultDocument.dataset",
    "report/results/schema.py ResultDocument.platform",
    "sweep/grid.py Grid.plugins",
}
#: Words that are keys of other tables and documents too.
NOUNS = {
    *("changes", "check", "dataset", "edges", "mode", "model", "options", "platform"),
    "programs",
    *("strategies", "strategy", "target", "vertices"),
}


def find_declarations(source: str, place: str) -> list[tuple[str, str]]:
    """Return the options that a source declares, each with its place.

    Declarations are annotated fields of classes, options and arguments of click, parameters of
    public functions of ``api.py``, and keys of dicts.
    """
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef():
                targets = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
                names = [each.id for each in targets if isinstance(each, ast.Name)]
                found += [(name, f"{node.name}.{name}") for name in names]
            case ast.Call(func=ast.Attribute(value=ast.Name("click"))):
                words = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
                spelt = [part for word in words for part in word.split("/")]
                found += [(SPELLINGS[word], word) for word in spelt if word in SPELLINGS]
            case ast.FunctionDef() if place == "api.py" and not node.name.startswith("_"):
                found += [(name, f"{node.name}({name})") for name in list_parameters(node.args)]
            case ast.Dict():
                keys = [str(each.value) for each in node.keys if isinstance(each, ast.Constant)]
                found += [(key, f"{{{key!r}}}") for key in keys if key not in NOUNS]
    return [(name, f"{place} {where}") for name, where in found if name in OPTIONS]


def list_parameters(arguments: ast.arguments) -> list[str]:
    given = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return [each.arg for each in given]


def find_all(root: Path) -> list[tuple[str, str]]:
    """Return the declarations in all rooms under ``root``, but for resolved objects."""
    files = [
        file
        for room in ROOMS
        for file in ([root / room] if room.endswith(".py") else sorted((root / room).glob("*.py")))
    ]
    found = [
        each
        for file in files
        for each in find_declarations(file.read_text(), file.relative_to(root).as_posix())
    ]
    assert {place for _, place in found} >= RESOLVED
    return [(name, place) for name, place in found if place not in RESOLVED]


def test_every_option_is_declared_once():
    found = find_all(SOURCES)
    counts = Counter(name for name, _ in found)
    assert counts == dict.fromkeys(OPTIONS, 1), [each for each in found if counts[each[0]] > 1]
    assert {place.partition(" ")[0] for _, place in found} == {"jobs/job.py", "jobs/groups.py"}


@pytest.mark.parametrize(
    ("place", "planted", "name"),
    [
        ("sweep/grid.py", "class Table:\n    batch_size: int = 1024", "batch_size"),
        ("comparison/request.py", "class Request:\n    repeats: int = 1", "repeats"),
        ("cli/plan.py", "@click.option('--set', 'settings')\ndef plan(): ...", "options"),
        ("cli/compare.py", "click.option('--plain/--no-plain', default=True)", "plain"),
        ("cli/compare.py", "click.option('--processes', type=int)", "processes"),
        ("cli/ablate.py", "click.argument('STRATEGY')", "strategy"),
        ("api.py", "def compare(strategies, *, hidden=256): ...", "hidden"),
        ("jobs/limits.py", "RULES = {'learning_rate': Real(0.0, 1.0)}", "learning_rate"),
        ("advice/documents.py", "def describe(w):\n    return {'fanouts': w.fanouts}", "fanouts"),
    ],
)
def test_a_second_declaration_is_found(place, planted, name):
    assert name in [found for found, _ in find_declarations(planted, place)]


@pytest.mark.parametrize("command", RECORDS)
def test_commands_and_functions_have_the_options_of_their_record(command):
    options = list_options(RECORDS[command])
    typed = {each.name: each for each in main.commands[command].params}
    for name, each in options.items():
        if each.flag and command in (each.option.commands or (command,)):
            assert each.flag.split("/")[0] in (*typed[name].opts, typed[name].metavar)
    if command in ("ablate", "matrix"):
        return
    function = getattr(gnnbench, command)
    parameters = inspect.signature(function).parameters
    assert list(parameters) == list(options)
    for name, each in options.items():
        assert parameters[name].default in (each.default, inspect.Parameter.empty)
        assert f"\n{name} : " in function.__doc__


def test_sweeps_and_results_have_names_of_the_records():
    assert set(SweepTable.model_fields) == {key.name for key in KEYS}
    assert {key.declared.name for key in KEYS} <= {*list_options(Job), *list_options(Spread)}
    schema = ResultDocument.model_json_schema(mode="validation")["$defs"]["WorkloadEntry"]
    of_results = {"dims", "weight_decay", "dtype"}
    assert set(schema["properties"]) - of_results <= set(list_options(Job))


def test_the_page_of_sweeps_lists_every_key():
    page = Path(__file__).parents[2] / "docs" / "sweeps.md"
    listed = re.findall(r"^\|(.*?)\|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {key.name for key in KEYS} <= set(re.findall(r"`(\w+)`", " ".join(listed)))


def test_a_new_option_is_one_field():
    """The field alone makes an option of the command and a parameter of the function."""

    @click.command()
    @takes(MoreJob, "compare")
    def command(asked):
        click.echo(f"{asked.make().programs} {sorted(asked.typed)}")

    @asks(MoreJob)
    def function(job, given) -> str:
        return f"{job.programs} {sorted(given)}"

    typed = CliRunner().invoke(command, ["--plugins", "a", "--program", "b", "--program", "c"])
    assert typed.output == "('b', 'c') ['programs', 'strategies']\n"
    assert function("a", programs=("b", "c")) == "('b', 'c') ['programs', 'strategies']"
    assert "Another program." in CliRunner().invoke(command, ["--help"]).output
    refused = CliRunner().invoke(command, ["--plugins", "a", "--program", "x=1"])
    assert "Invalid value for '--program': x=1 is no program." in refused.output
    with pytest.raises(TypeError, match=r"function\(\) got an unexpected keyword argument 'prog'"):
        function("a", prog="b")
