"""How `make docs` builds the site: pages, docstrings and an executed notebook; no network."""

from importlib.metadata import version as version_of

from click import Context
from sphinx.application import Sphinx
from typer.cli import get_docs_for_click
from typer.main import get_command

from agewise.cli import app as cli

project = "Agewise"
author = "The Agewise developers"
version = release = version_of("agewise")
html_title = f"Agewise {version}"

extensions = ["myst_nb", "sphinx.ext.autodoc"]

myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # there are none, and no script from elsewhere

default_role = "code"
smartquotes = False  # two dashes are an option
add_module_names = False
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: name
    for name in ["Array", "ArrayLike", "Labels", "Numbers", "Positive", "Rows", "Size", "Words"]
}
maximum_signature_line_length = 88

html_theme = "furo"
html_theme_options = {"footer_icons": []}
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_extra_path = ["scenario.schema.json"]


def add_commands(_app: Sphinx, page: str, source: list[str]) -> None:
    """Put what each command says of itself on the page of commands."""
    if page == "commands":
        command = get_command(cli)
        told = get_docs_for_click(obj=command, ctx=Context(command), name="agewise")
        source[0] += told[told.index("\n## ") :]  # each by itself, after its table of contents


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_commands)
