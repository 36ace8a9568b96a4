"""The settings of Sphinx. The sources are the repository, so that a link to any of its files is checked."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "docs"))  # `making`, which lies beside the pages
sys.path.insert(0, str(REPOSITORY))

_READ = {"docs", "examples"}

project = "rmqclient"
version = release = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
root_doc = "docs/README"
include_patterns = ["docs/**.md", "examples/*/README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
exclude_patterns = [each.name for each in REPOSITORY.iterdir() if each.is_dir() and each.name not in _READ]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "making.addresses",
    "making.commands",
    "making.contents",
    "making.llms",
    "making.sources",
    "making.stubs",
    "making.words",
]

myst_enable_extensions = ["attrs_block", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # a default is shown as it is written, not as an address in memory
autodoc_typehints_format = "short"
add_module_names = False
python_maximum_signature_line_length = 88
maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"rmqclient {version}"
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["access.js", "pictures.js"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_use_index = True
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_remove_prompts = True
copybutton_exclude = ".linenos, .go"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#b3431f",
        "color-brand-content": "#b3431f",
        "color-brand-visited": "#8d4a6b",
        "color-sidebar-link-text--top-level": "var(--color-foreground-secondary)",
        "font-stack--monospace": "ui-monospace, 'Cascadia Code', 'JetBrains Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
    },
    "dark_css_variables": {
        "color-brand-primary": "#ff9d76",
        "color-brand-content": "#ff9d76",
        "color-brand-visited": "#d7a3c4",
        "color-sidebar-link-text--top-level": "var(--color-foreground-secondary)",
    },
    "navigation_with_keys": True,
    "top_of_page_buttons": [],
}
