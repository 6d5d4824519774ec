import errno
import sys
from pathlib import Path

import pytest

from optimum_cpp.swapping import swap


@pytest.mark.skipif(sys.platform != "linux", reason="other systems move in two steps")
def test_two_folders_change_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    assert swap(one, other)
    assert ((one / "name").read_text(), (other / "name").read_text()) == ("other", "one")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems move in two steps")
def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(OSError, match="nowhere") as found:
        swap(tmp_path / "one", tmp_path / "nowhere")
    assert found.value.errno == errno.ENOENT


def test_where_the_system_cannot_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(sys, "platform", "win32")
    assert not swap(tmp_path / "one", tmp_path / "other")
