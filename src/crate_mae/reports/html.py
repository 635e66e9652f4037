"""A self-contained HTML file with text, tables and figures; it loads nothing from outside."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --paper: #fff; --line: #d5dae1; --soft: #f4f6f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9f0; --paper: #14181d; --line: #37404b; --soft: #1d232a; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
img { box-sizing: border-box; max-width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 6px; }
figure { margin: 1rem 0; } figcaption { font-size: .92rem; opacity: .85; margin-top: .4rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; overflow-wrap: normal; }
th, td { text-align: left; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); }
td + td, th + th { text-align: right; font-variant-numeric: tabular-nums; }
code { background: var(--soft); padding: .1rem .3rem; border-radius: 4px; }
""".strip()


@dataclass
class Report:
    """A page of sections, in the order in which they are added."""

    title: str
    lead: str
    _parts: list[str] = field(default_factory=list)

    def section(self, heading: str, *paragraphs: str) -> None:
        """Add a heading and plain paragraphs."""
        self._parts += [f"<h2>{escape(heading)}</h2>", *(f"<p>{escape(text)}</p>" for text in paragraphs)]

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table with text in the first column and numbers in the others."""
        cells = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
        names = "".join(f"<th>{escape(name)}</th>" for name in head)
        body = f"<thead><tr>{names}</tr></thead><tbody>{''.join(cells)}</tbody>"
        self._parts.append(f'<div class="scroll"><table>{body}</table></div>')

    def picture(self, png: Path, caption: str, description: str) -> None:
        """Embed a figure with its caption, and a description for screen readers."""
        data = base64.b64encode(png.read_bytes()).decode()
        image = f'<img alt="{escape(description)}" src="data:image/png;base64,{data}">'
        self._parts.append(f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>")

    def write(self, path: Path) -> Path:
        """Write the page."""
        title = escape(self.title)
        page = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>{title}</title><style>{STYLE}</style></head>
<body><h1>{title}</h1><p>{escape(self.lead)}</p>
{chr(10).join(self._parts)}
</body></html>
"""
        path.write_text(page, encoding="utf-8")
        return path
