"""Pages of the site that are not files of this folder: those of the repository's root, and the API reference."""

import re
from pathlib import Path

import griffe
from markdown import Markdown
from markdown.extensions import Extension
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "crate_mae"
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


class NoHTML(Extension):
    """Text between < and > is a formula here, such as <U_k^T z_i, U_k^T z_cls>, and never a tag."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.deregister("html_block")
        md.inlinePatterns.deregister("html")


class OnlyDocumented(griffe.Extension):
    """Leave attributes without a docstring, such as ``self.heads = heads``, out of the reference."""

    def on_class_members(self, *, cls: griffe.Class, **_: object) -> None:
        for name, member in list(cls.members.items()):
            if "instance-attribute" in member.labels and not member.has_docstring:
                cls.del_member(name)


def subjects() -> list[str]:
    """The modules and packages directly below ``crate_mae``."""
    below = (path for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file())
    return sorted(path.stem for path in below if not path.stem.startswith("_"))


def modules(subject: str) -> list[str]:
    """A subject's modules by their dotted names, the package itself first."""
    if (SOURCE / f"{subject}.py").is_file():
        return [f"crate_mae.{subject}"]
    paths = sorted((SOURCE / subject).rglob("*.py"))
    names = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__") for path in paths
    }
    return sorted(names)


def reference(subject: str) -> str:
    """The page of a subject: the docstrings of its modules."""
    return f"# {subject}\n\n" + "\n".join(f"::: {name}" for name in modules(subject)) + "\n"


def from_root(text: str) -> str:
    """A file of the root as a page: its links, which are relative to the root, become relative to ``docs``."""
    text = text.replace("](docs/", "](")
    for name, page in PAGES.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text


def on_page_markdown(markdown: str, **_: object) -> str:
    """Remove the marks of generated tables, which ``NoHTML`` would show, and adapt links to files of the root."""
    markdown = re.sub(r"^<!-- .* -->\n", "", markdown, flags=re.MULTILINE)
    for name, page in PAGES.items():
        markdown = markdown.replace(f"](../{name}", f"]({page}")
    return markdown


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the menu's API reference."""
    config.markdown_extensions.append(NoHTML())
    pages = ["reference/crate_mae.md", *(f"reference/{subject}.md" for subject in subjects())]
    config.nav = [{"API reference": pages} if item == {"API reference": "reference"} else item for item in config.nav]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files of this folder."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=from_root((ROOT / name).read_text())))
    files.append(File.generated(config, "reference/crate_mae.md", content=first_page()))
    for subject in subjects():
        files.append(File.generated(config, f"reference/{subject}.md", content=reference(subject)))
    return files


def first_page() -> str:
    """The public names of ``crate_mae``, and the page of each subject with the first line of its docstring."""
    package = (SOURCE / "__init__.py").read_text()
    names = re.findall(r'^    "(\w+)": "([\w.]+)",$', package, re.MULTILINE)
    public = "\n".join(f"- [`crate_mae.{name}`][crate_mae.{home}.{name}]" for name, home in names)
    rows = "\n".join(f"| [`{subject}`]({subject}.md) | {summary(subject)} |" for subject in subjects())
    table = f"| module | what it is |\n|---|---|\n{rows}"
    return f"# crate_mae\n\nWhat most users need:\n\n{public}\n\nAll modules:\n\n{table}\n"


def summary(subject: str) -> str:
    """The first line of its docstring."""
    path = SOURCE / f"{subject}.py"
    text = (path if path.is_file() else SOURCE / subject / "__init__.py").read_text()
    return text.split('"""')[1].split("\n")[0]
