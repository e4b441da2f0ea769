# SPDX-License-Identifier: LGPL-3.0-or-later
"""Files and names in the documents exist, and so does the text that planted patches change."""

import re
import shutil
import subprocess
import sys

import pytest

from flux_embedded.broker import start
from flux_embedded.cmd import commands


def test_the_man_page_has_all_commands_and_every_option_of_flux_start(srcdir):
    page = (srcdir / "doc" / "man" / "flux-embedded.rst").read_text()
    section = re.search(r"Commands\n-+\n\n(.*?)\n\n", page, re.DOTALL).group(1)
    listed = set(re.findall(r"\*\*([\w-]+)\*\*", section)) - {"--dry-run"}
    assert listed == {name for name, (_, text) in commands.COMMANDS.items() if text}
    options = set(re.findall(r"--[a-z-]+", start.make_parser().format_help())) - {"--help"}
    assert options
    assert not {option for option in options if "**" + option not in page}


def test_comments_of_attributes_have_no_colon_in_their_first_line(srcdir):
    """Sphinx napoleon would read the text before it as a type."""
    bindings = srcdir / "src" / "bindings" / "python" / "flux"
    wrong = []
    for path in sorted(bindings.rglob("*.py")):
        lines = path.read_text().splitlines()
        for before, line in zip(["", *lines], lines):
            if re.match(r"    #: .*:( |$)", line) and not before.startswith("    #:"):
                wrong.append(f"{path.name}: {line.strip()}")
    assert wrong == []


def test_the_table_of_disclosure_is_made_without_the_package(srcdir):
    """For a real Flux the documentation is built before there is a complete `flux`."""
    source = srcdir / "src" / "bindings" / "python" / "flux" / "scheduler" / "disclosure.py"
    code = f"import runpy; assert runpy.run_path({str(source)!r})['FIELDS']"
    subprocess.run([sys.executable, "-I", "-c", code], check=True)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "NEWS.md"])
def test_linked_files_exist(srcdir, name):
    text = (srcdir / name).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (srcdir / target).exists(), target


def test_files_named_for_contributors_exist(srcdir):
    text = (srcdir / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`[\w/]*?([\w-]+\.(?:py|rst|t))`", text))
    parts = [(srcdir / part).rglob("*") for part in ("doc", "src", "t")]
    assert named - {path.name for part in parts for path in part} == set()


def test_the_policy_of_the_readme_is_the_first_example_of_the_guide(srcdir):
    """The other tests of that policy take it from the example."""
    readme = (srcdir / "README.md").read_text()
    shown = re.search(r"```python\n(.*?)```", readme, re.DOTALL).group(1)
    example = (srcdir / "doc" / "examples" / "first.py").read_text()
    assert example.partition('"""\n\n')[2] == shown


def test_the_tables_of_tests_have_every_module_and_every_test(srcdir):
    page = (srcdir / "doc" / "reference" / "testing.rst").read_text().partition("Harnesses\n")[0]
    bindings = srcdir / "src" / "bindings" / "python" / "flux"
    tests = srcdir / "t" / "python"
    rows = "\n".join(line for line in page.splitlines() if line.startswith("  "))
    named = set(re.findall(r"``([\w./-]+)``", rows))
    modules = {one for one in named if "test_" not in one and not one.endswith(".t")}

    def missing(names, *rooms):
        return [one for one in names if not any((room / one).exists() for room in rooms)]

    assert missing(modules, bindings, bindings.parent, srcdir / "src" / "embedded") == []
    assert missing(named - modules, srcdir / "t", tests) == []
    for path in tests.glob("*/test_*.py"):
        room = path.parent.name
        assert f"``{room}/{path.name}``" in page or f"``{room}/``" in page, path
    covered = {bindings / one for one in modules}
    for part in ("resource", "scheduler", "simulate"):
        for path in (bindings / part).rglob("*.py"):
            assert path.name == "__init__.py" or covered & {path, *path.parents}, path


def test_every_planted_patch_applies(srcdir):
    if shutil.which("patch") is None:
        pytest.skip("no patch")
    command = ["patch", "--dry-run", "-f", "-p1", "-i"]
    for patch in sorted(srcdir.glob("t/planted/*/*.patch")):
        assert subprocess.run([*command, patch], cwd=srcdir).returncode == 0, patch
        tests = re.search("^Tests: (.*)$", patch.read_text(), re.M).group(1)
        assert [one for one in tests.split() if not (srcdir / one).exists()] == [], patch
