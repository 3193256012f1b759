"""The documentation is a site: its links lead somewhere, and nothing comes from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def built(folder: Path, docs: Path = ROOT / "docs", **changes: object) -> Path:
    """The site, strictly built into a folder. Abort: a warning."""
    site = folder / "site"
    build(
        load_config(
            str(ROOT / "mkdocs.yml"), docs_dir=str(docs), site_dir=str(site), strict=True, **changes
        )
    )
    return site


def test_the_site_is_whole_and_fetches_nothing(tmp_path: Path) -> None:
    site = built(tmp_path)
    pages = [path.read_text(encoding="utf-8") for path in site.rglob("*.html")]
    assert (site / "repository/recipes/starter/index.html").exists()
    assert (site / "repository/proto/toolwright/tool/v1/tool.proto.html").exists()
    fetched = r'<(?:script|img|iframe)[^>]+src="https?:|<link(?![^>]+canonical)[^>]+href="https?:'
    assert not [found for page in pages for found in re.findall(fetched, page)]
    assert (site / "search/search_index.json").stat().st_size > 100_000


@pytest.mark.parametrize(
    ("text", "nav"),
    [
        ("[page](nowhere.md)", ["index.md"]),
        ("[page](#nowhere)", ["index.md"]),
        ("[page](other.md#nowhere)", ["index.md", "other.md"]),
        ("[code](../engine/nowhere.py)", ["index.md"]),
        ("a page that is not in the navigation", ["other.md"]),
    ],
)
def test_what_leads_nowhere_is_refused(tmp_path: Path, text: str, nav: list[str]) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Index\n\n{text}\n", encoding="utf-8")
    (docs / "other.md").write_text("# Other\n", encoding="utf-8")
    with pytest.raises(Abort):
        built(tmp_path, docs, nav=nav, plugins=[], hooks=[], theme={"name": "mkdocs"})


def test_a_small_site_without_faults_is_built(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Index\n\n[page](other.md#part)\n", encoding="utf-8")
    (docs / "other.md").write_text("# Other\n\n## Part\n", encoding="utf-8")
    site = built(
        tmp_path, docs, nav=["index.md", "other.md"], plugins=[], hooks=[], theme={"name": "mkdocs"}
    )
    assert 'href="other.html#part"' in (site / "index.html").read_text(encoding="utf-8")
