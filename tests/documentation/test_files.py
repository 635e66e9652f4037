"""What a repository's visitors read first is well formed, and agrees with the package."""

import tomllib

import pytest

from tests.documentation.pages import ROOT

yaml = pytest.importorskip("yaml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_names_the_software_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format asks for
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert citation["authors"][0]["name"] in (ROOT / "LICENSE").read_text()
    paper = citation["preferred-citation"]
    assert {"type", "title", "authors"} <= paper.keys()
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert paper["title"] in readme
    assert all(author["family-names"] in readme for author in paper["authors"])


def test_the_changelog_has_the_version_of_the_package() -> None:
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "file", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda file: file.stem
)
def test_an_issue_form_has_what_such_forms_need(file) -> None:  # type: ignore[no-untyped-def]
    form = yaml.safe_load(file.read_text())
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)


def test_the_readme_lists_every_extra() -> None:
    readme = (ROOT / "README.md").read_text()
    for extra in PROJECT["optional-dependencies"]:
        assert f"`{extra}`" in readme, extra


def test_the_workflow_runs_everything_on_every_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML reads the key "on" as a truth value
    job = workflow["jobs"]["ci"]
    first = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert job["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in range(first, first + 4)]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
