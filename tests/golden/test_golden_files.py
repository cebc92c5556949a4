"""Files that were written once are read for ever, with the same scores; the files of models are in tests/store."""

import pytest
from make_golden_files import FOLDER, INDICES, checks

from splinefm.rank import file as index_file
from splinefm.store import sharded
from splinefm.update import state


@pytest.mark.parametrize("name", [name for name in checks() if not name.startswith("format")])
def test_it_is_read_and_scores_as_then(name):
    checks()[name]()


def test_every_format_has_a_file():
    """A new format needs a new file here; the old ones stay."""
    names = {path.stem for path in FOLDER.iterdir()}
    assert index_file.FORMAT == 2 and {"index-format1", *INDICES} <= names
    assert state.FORMAT == 1 and "state-format1" in names
    assert sharded.FORMAT == 1 and "sharded-format1" in names
    assert "scorer-version1" in names
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 300_000
