"""The documentation site: `make docs` builds it from docs/ and docstrings.

    api.py      a page for each public module, from its docstrings
    keys.py     every key of a config
    flags.py    every command and its flags
    links.py    where a link of the repository leads on the site

The pages that these write are in GENERATED, which git ignores.
"""

import pathlib
import shutil
import sys

SITE = pathlib.Path(__file__).parent
sys.path.insert(0, str(SITE))
sys.path.insert(0, str(SITE.parents[1]))

import api  # noqa: E402  (of this folder)
import flags  # noqa: E402
import keys  # noqa: E402
import links  # noqa: E402

from rnn_jax.version import __version__  # noqa: E402  (no `version` here)

DOCS = SITE.parent
GENERATED = DOCS / 'generated'

project = 'rnn_jax'
author = copyright = 'the authors of rnn_jax'
release = __version__
extensions = ['myst_nb']
source_suffix = {'.md': 'myst-nb', '.ipynb': 'myst-nb'}
exclude_patterns = ['site/*', 'cluster/*']
templates_path = []
smartquotes = False  # code is in many sentences
html_theme = 'furo'
html_title = f'rnn_jax {release}'
html_static_path = ['static']
html_css_files = ['site.css']
html_copy_source = False
html_theme_options = {'navigation_with_keys': True}
html_last_updated_fmt = None  # two builds are equal
nb_execution_mode = 'off'  # notebooks hold their outputs, and tests run them
myst_enable_extensions = ['colon_fence', 'fieldlist']
myst_heading_anchors = 5
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = 'hide'
suppress_warnings = [
  'myst.header',  # of docstrings, which are below others
  'ref.python',  # a type's name that several modules have, as Config
]


def setup(app):
  shutil.rmtree(GENERATED, ignore_errors=True)
  for name, text in (*api.pages(), *keys.pages(), *flags.pages()):
    write(name, text)
  links.home(write)
  for path in (*DOCS.glob('*.*'), *DOCS.glob('start/*.*')):
    if path.suffix in source_suffix:  # before Sphinx looks for pages
      text = path.read_text(encoding='utf-8')
      links.relocated(text, path.parent, write)
  app.connect('source-read', read)


def write(name, text):
  path = GENERATED / f'{name}.md'
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, encoding='utf-8')


def read(app, page, source):
  """Points the links of a page to pages of the site."""
  del app
  if not page.startswith(GENERATED.name):
    source[0] = links.relocated(source[0], (DOCS / page).parent, write)
