"""Sentences about files that break their schema."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gnnbench.machines.tables import Key, find_metadata, list_keys

#: An example of a value by unit, and the unit of the example.
_EXAMPLES = {
    "FLOP/s": ("3.6", '"TFLOP/s"'),
    "B/s": ("205", '"GB/s"'),
    "B": ("24", '"GB"'),
    "edges/s": ("20", '"Medges/s"'),
    "s": ("10", '"us"'),
    "W": ("280", '"W"'),
    "Hz": ("300", '"MHz"'),
    "": ("4", ""),
}
#: The rule that a value breaks, by the type of pydantic's error.
_RULES = {
    "greater_than": "above zero",
    "greater_than_equal": "zero or more",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_type": "a whole number",
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    "string_pattern_mismatch": "letters, digits and underscores, and begin with no digit",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "literal_error": "{expected}",
}


def suggest(wrong: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'gpu'``, or the list of choices."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=1)
    return f"did you mean {close[0]!r}" if close else f"choose from {', '.join(names)}"


def explain(error: ValidationError, data: Mapping[str, Any], root: Any) -> str:
    """Return the first of pydantic's errors as a clause, and the number of further ones. ``root``
    is the annotation of the file's ``data``.

    An unknown key comes first, since it may be a misspelling of a missing one.
    """
    details = error.errors(include_url=False)
    unknown = [one for one in details if one["type"] == "extra_forbidden"]
    meant = {(*one["loc"][:-1], _closest_key(root, one)) for one in unknown}
    others = [one for one in details if one not in unknown]
    rest = [one for one in others if not (one["type"] == "missing" and one["loc"] in meant)]
    ordered = unknown + rest
    more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
    return _clause(root, ordered[0], data) + more


def _clause(root: Any, error: ErrorDetails, data: Mapping[str, Any]) -> str:
    loc = error["loc"]
    where, keys = _place(root, loc, data)
    kind, given = error["type"], _shorten(error["input"])
    key = keys[-1] if keys else ""
    table = f"{keys[0]} of {where}" if len(keys) > 1 else where
    subject = f"{keys[0]} of {where}" if keys else where
    if len(keys) > 1 and key != "value":
        subject = f"{key} of {subject}"
    if kind == "extra_forbidden":
        return f"unknown key {key!r} in {table}; {suggest(key, list_keys(_find(root, loc[:-1])))}"
    if kind == "missing":
        return f"{table} has no {key}; add {_write_example(root, loc)}"
    if kind == "dict_type":
        number = find_metadata(_find(root, loc), Key)
        if number is None or number.unit is None:
            return f"{key or where} is {given}; it must be a table"
        lacking = "a unit and a source" if number.unit else "a source"
        return f"{subject} is {given} without {lacking}; write {_write_example(root, loc)}"
    if kind == "value_error":
        return f"{table if len(keys) > 1 else subject}: {error['ctx']['error']}"
    if kind in ("list_type", "tuple_type") and _holds_tables(_find(root, loc)):
        return f"{key} must be a list of tables; write [[{key}]]"
    if kind in _RULES:
        return f"{subject} is {given}; it must be {_RULES[kind].format(**error.get('ctx', {}))}"
    return f"{subject} is {given}: {error['msg']}"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _place(root: Any, loc: Sequence[int | str], data: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return a location as the name of its table (``[host]``) and the keys below that."""
    top, *rest = loc
    if rest and _holds_tables(_find(root, [top])):
        index, *inner = rest
        return f"[[{top}]] {_name_entry(data[str(top)][index], int(index))}", list(map(str, inner))
    number = find_metadata(_find(root, [top]), Key)
    if rest and number is not None and number.unit is None:
        return f"[{top}]", list(map(str, rest))
    return "the file", list(map(str, loc))


def _name_entry(entry: Any, index: int) -> str:
    """Return the name of a table in a list, the ends of a link, or else its number."""
    for keys in (("name",), ("from", "to")):
        if isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in keys):
            return " to ".join(entry[key] for key in keys)
    return f"number {index + 1}"


def _find(root: Any, loc: Sequence[int | str]) -> Any:
    """Return the annotation of a key, or of the table whose key is unknown."""
    annotation = root
    for part in loc:
        # A number is the place in a list; a name that is no key is one that the file gives.
        annotation = list_keys(annotation).get(str(part), annotation)
    return annotation


def _holds_tables(annotation: Any) -> bool:
    """Return whether a key holds a list of tables."""
    while hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    return get_origin(annotation) in (list, tuple) and bool(list_keys(annotation))


def _closest_key(root: Any, error: ErrorDetails) -> str | None:
    """Return the known key that an unknown one resembles."""
    loc = error["loc"]
    close = difflib.get_close_matches(str(loc[-1]), list_keys(_find(root, loc[:-1])), n=1)
    return close[0] if close else None


def _write_example(root: Any, loc: Sequence[int | str]) -> str:
    """Return an example for a missing key or a bare number."""
    key = str(loc[-1])
    annotation, table = _find(root, loc), _find(root, loc[:-1])
    inner = find_metadata(table, Key)
    if inner is not None and inner.unit is not None:
        return f"{key} = {_list_examples(inner, table)[key]}"
    number = find_metadata(annotation, Key)
    if number is not None and number.unit is not None:
        parts = _list_examples(number, annotation).items()
        return f"{key} = {{ {', '.join(' = '.join(part) for part in parts)} }}"
    return f"a [{key}] table" if list_keys(annotation) else f'{key} = "..."'


def _list_examples(number: Key, annotation: Any) -> dict[str, str]:
    """Return an example of each key of a number or curve."""
    value, unit = _EXAMPLES[number.unit or ""]
    examples = {"value": value}
    if "value" not in list_keys(annotation):
        examples = {"widths": "[16, 256]", "values": "[20, 30]", "core_values": "[10, 15]"}
    return {**examples, **({"unit": unit} if unit else {}), "source": '"..."'}
