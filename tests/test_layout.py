"""The rooms, who may import what, and what the repository may hold."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("platform", "search_spaces", "trainables")
MAY_IMPORT = {
    "platform": {"platform", "search_spaces", "trainables"},
    "search_spaces": {"search_spaces", "trainables"},
    "trainables": {"trainables"},
}
MAX_LINES = 400


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def python_files(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py"))


def tracked_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [p for name in listing.stdout.split("\0") if name and (p := ROOT / name).is_file()]


def imports(path: Path) -> Iterator[str]:
    """Yield every module a file imports, wherever in the file, and what it takes from it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(package: str, *folders: str) -> set[str]:
    """Return the files that import a package or anything below it."""
    return {
        str(path.relative_to(ROOT))
        for path in python_files(*folders)
        if any(name.split(".")[0] == package for name in imports(path))
    }


def package_folders() -> dict[str, str]:
    return dict(pyproject()["tool"]["setuptools"]["package-dir"])


def folders_with_python() -> set[str]:
    return {str(path.parent.relative_to(ROOT)) for path in python_files(*ROOMS)}


def test_the_standard_librarys_platform_wins_in_the_repository_root() -> None:
    code = "import platform; print(platform.python_version())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ".".join(map(str, sys.version_info[:3]))


def test_the_folder_platform_is_no_package_of_its_own() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()


def test_every_folder_that_holds_python_is_packaged() -> None:
    assert set(package_folders().values()) == folders_with_python()
    assert set(pyproject()["tool"]["setuptools"]["packages"]) == set(package_folders())


def test_packages_are_named_after_their_folders() -> None:
    for package, folder in package_folders().items():
        assert package == "oclgrid." + folder.replace("/", ".")


def test_every_package_says_that_it_is_typed() -> None:
    shipped = pyproject()["tool"]["setuptools"]["package-data"]
    for package, folder in package_folders().items():
        assert (ROOT / folder / "py.typed").is_file(), folder
        assert "py.typed" in shipped[package], package


def test_presets_are_shipped() -> None:
    shipped = pyproject()["tool"]["setuptools"]["package-data"]["oclgrid.search_spaces"]
    folder = ROOT / "search_spaces"
    found = {path for pattern in shipped for path in folder.glob(pattern)}
    assert {*folder.glob("presets/*"), *folder.glob("searches/*")} <= found


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_one_way(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in python_files(room)
        for name in imports(path)
        if name.split(".")[0] == "oclgrid" and name.split(".")[1] not in MAY_IMPORT[room]
    ]
    assert wrong == []


def test_rooms_are_imported_below_the_projects_name_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in python_files(*ROOMS, "tests", "benchmarks")
        for name in imports(path)
        if name.startswith(("trainables", "search_spaces"))
        or (name.startswith("platform.") and not _is_of_standard_platform(name))
    ]
    assert wrong == []


def _is_of_standard_platform(name: str) -> bool:
    return hasattr(importlib.import_module("platform"), name.removeprefix("platform."))


def test_only_the_adapter_of_trainables_knows_ray() -> None:
    assert importers("ray", "trainables", "search_spaces") == {"trainables/cell.py"}


def test_only_the_launcher_the_search_and_jobs_of_platform_know_ray() -> None:
    assert importers("ray", "platform") == {
        "platform/board.py",
        "platform/cluster_jobs.py",
        "platform/launch.py",
        "platform/oversight.py",
        "platform/search.py",
    }


def test_only_the_study_and_the_search_know_optuna() -> None:
    assert importers("optuna", *ROOMS) == {"platform/search.py", "platform/study.py"}


def test_only_the_modules_around_the_store_know_mlflow() -> None:
    assert importers("mlflow", *ROOMS) <= {
        "platform/store.py",
        "platform/cell_log.py",
        "platform/model.py",
        "platform/store_copy.py",
    }


def test_the_science_knows_neither_mlflow_nor_optuna() -> None:
    for package in ("mlflow", "optuna"):
        assert importers(package, "trainables", "search_spaces") == set()


@pytest.mark.parametrize("path", python_files(*ROOMS), ids=lambda p: str(p.relative_to(ROOT)))
def test_what_a_module_offers_is_documented(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module has no docstring"
    assert list(_undocumented(tree)) == []


def _undocumented(parent: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in parent.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_"):
            continue
        overrides = isinstance(parent, ast.ClassDef) and _is_callback(node.name)
        if not ast.get_docstring(node) and not overrides:
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node)


def _is_callback(name: str) -> bool:
    return name.startswith("on_trial_")  # Tune documents its own hooks


def test_no_file_is_longer_than_a_sitting() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(*ROOMS, "tests", "benchmarks")
    }
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def test_no_tracked_file_names_a_place_on_somebodys_machine() -> None:
    folders = "|".join(("work", "home", "root", "Users", "tmp", "mnt", "scratch"))
    place = re.compile(rf"(?<![\w.~}}/-])/(?:{folders})/\w")
    assert _lines_with(place) == []


def test_no_tracked_file_names_a_package_registry() -> None:
    words = "|".join(("index-url", "artifactory", "devpi", "pypi" + r"\.", "registry" + r"\."))
    registry = re.compile(rf"--(?:extra-)?index|https?://[^\s/]*(?:{words}|nexus)", re.IGNORECASE)
    assert _lines_with(registry) == []


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked_files()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_links_between_pages_lead_somewhere() -> None:
    pages = {p: p.read_text(encoding="utf-8") for p in tracked_files() if p.suffix == ".md"}
    broken = []
    for page, text in pages.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, part = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            headings = re.findall(r"^#+ (.*)$", pages.get(target, ""), flags=re.MULTILINE)
            parts = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            if not target.exists() or (part and part not in parts):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_constraints_are_exact_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [x for x in lines if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*==[0-9][\w.!]*", x)] == []


def test_every_dependency_is_pinned_once() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line.split("==")[0] for line in lines]
    project = pyproject()["project"]
    asked = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[\[<>=!~; ]", text)[0].lower().replace("_", "-") for text in asked}
    assert names - set(pinned) == {"oclgrid"}  # an extra of our own
    assert len(pinned) == len(set(pinned))


def test_the_command_points_at_a_function() -> None:
    module, name = pyproject()["project"]["scripts"]["oclgrid"].split(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_python_3_11_is_enough() -> None:
    assert pyproject()["project"]["requires-python"] == ">=3.11"


@pytest.mark.parametrize(
    "command", ["list", "plan quickstart", "table {sweep} --from {cells}", "report {sweep}"]
)
def test_who_only_looks_waits_for_no_heavy_library(command: str, tmp_path: Path) -> None:
    """PyTorch alone takes seconds to import; a broken installation must not hide results."""
    heavy = ("torch", "torchvision", "mlflow", "ray", "optuna")
    code = f"import sys; sys.modules |= dict.fromkeys({heavy}); "
    code += "from oclgrid.platform.cli import main; sys.exit(main(sys.argv[1:]))"
    cells = ROOT / "results" / "cells.parquet"
    arguments = command.format(sweep="cifar10-tenth", cells=cells).split()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    is_empty = command.startswith("report")  # there is no store yet, which it says
    assert done.returncode == (2 if is_empty else 0), done.stderr
    assert "Traceback" not in done.stderr
