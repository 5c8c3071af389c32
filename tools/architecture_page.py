"""Draws the rooms of the package into docs/architecture.md, from the imports themselves.

A row imports from rows below it alone; a test compares the page with what this makes.
"""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: made by tools/architecture_page.py -->\n", "<!-- end of rooms -->"


def imports_by_room() -> dict[str, set[str]]:
    """Return which rooms each room imports; imports for types alone count too."""
    graph = grimp.build_graph("leap_rl")
    found: dict[str, set[str]] = {}
    for module in graph.modules:
        here = found.setdefault(_room(module), set())
        here |= {_room(other) for other in graph.find_modules_directly_imported_by(module)}
    for room, others in found.items():
        others -= {room, ""}
    del found[""], found["__main__"]
    return found


def levels(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the rooms from the top down, those that need not know each other in one level.

    Raises:
        graphlib.CycleError: There is a circle.
    """
    order = TopologicalSorter(imports)
    order.prepare()
    found: list[list[str]] = []
    while order.is_active():
        found.append(sorted(order.get_ready()))
        order.done(*found[-1])
    return found[::-1]


def table() -> str:
    """Return the rooms as a table, from the top down."""
    rows = ["| room | what it holds |", "|---|---|"]
    for level in levels(imports_by_room()):
        rows += [f"| `{room}` | {_purpose(room)} |" for room in level]
    return "\n".join(rows) + "\n"


def page() -> str:
    """Return the page with a table made from the imports."""
    text = PAGE.read_text()
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:before] + "\n" + table() + "\n" + text[after:]


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _purpose(room: str) -> str:
    folder = ROOT / "leap_rl" / room
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.partition("\n\n")[0].split()).rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
