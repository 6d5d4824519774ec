import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import optimum_cpp.staging as staging_module
from optimum_cpp.errors import UsageError
from optimum_cpp.staging import check_output, staged_directory


def _everything(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_the_folder_appears_whole(tmp_path: Path) -> None:
    with staged_directory(tmp_path / "a" / "out") as staging:
        (staging / "sub").mkdir()
        (staging / "sub" / "file").write_text("new")
        assert not (tmp_path / "a" / "out").exists()
    assert _everything(tmp_path) == {"a/out/sub/file": "new"}
    assert (tmp_path / "a" / "out").stat().st_mode & 0o777 == 0o755


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"), staged_directory(tmp_path / "out") as staging:
        (staging / "file").write_text("half")
        raise RuntimeError("boom")
    assert list(tmp_path.iterdir()) == []


def test_overwriting_replaces_all_of_the_old_folder_or_none(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "reliability_contract.json").write_text("old")
    with pytest.raises(RuntimeError), staged_directory(out, overwrite=True) as staging:
        (staging / "new").write_text("half")
        raise RuntimeError
    assert _everything(tmp_path) == {"out/reliability_contract.json": "old"}
    with staged_directory(out, overwrite=True) as staging:
        (staging / "new").write_text("new")
    assert _everything(tmp_path) == {"out/new": "new"}


def test_a_folder_filled_meanwhile_is_not_lost(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UsageError, match="not"), staged_directory(out) as staging:
        (staging / "new").write_text("new")
        out.mkdir()
        (out / "theirs").write_text("theirs")
    assert _everything(tmp_path) == {"out/theirs": "theirs"}


def test_a_failing_move_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "reliability_contract.json").write_text("old")
    rename = Path.rename
    monkeypatch.setattr(staging_module, "swap", lambda one, other: False)

    def failing(self: Path, target: Path) -> Path:
        if ".partial-" in self.name:
            raise OSError("no space left")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no space"), staged_directory(out, overwrite=True) as staging:
        (staging / "new").write_text("new")
    assert _everything(tmp_path) == {"out/reliability_contract.json": "old"}


def test_what_would_be_lost_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="file"):
        check_output(tmp_path / "file", overwrite=True)
    with pytest.raises(UsageError, match="--overwrite"):
        check_output(tmp_path / "full", overwrite=False)
    assert check_output(tmp_path / "empty", overwrite=False) == tmp_path / "empty"
    with pytest.raises(UsageError, match="cannot be written"):
        check_output(tmp_path / "file" / "out", overwrite=False)
    with pytest.raises(UsageError, match="empty"):
        check_output("", overwrite=False)
    with pytest.raises(UsageError, match="too long"), staged_directory(tmp_path / ("x" * 300)):
        pass
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "deep")
    assert check_output(tmp_path / "dangling", overwrite=False) == tmp_path / "nowhere" / "deep"


def test_overwriting_takes_only_an_earlier_output_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "docs").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"reliability_contract\.json"):
        check_output(home, overwrite=True)
    (home / "reliability_contract.json").write_text("{}")
    assert check_output(home, overwrite=True) == home
    (home / "pool.jsonl").write_text("x")
    with pytest.raises(UsageError, match=r"pool\.jsonl"):
        check_output(home, overwrite=True, keep=("some/hub-id", None, home / "pool.jsonl"))
    with pytest.raises(UsageError, match="home"):
        check_output(home, overwrite=True, keep=(home,))
    monkeypatch.chdir(home / "docs")
    for inside in (".", "..", home):
        with pytest.raises(UsageError, match="where you work"):
            check_output(inside, overwrite=True)


def test_a_link_leads_to_the_folder_behind_it(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    with staged_directory(tmp_path / "out") as staging:
        (staging / "file").write_text("new")
    assert (tmp_path / "out").is_symlink() and (tmp_path / "disk" / "file").read_text() == "new"


def old_output(folder: Path) -> Path:
    folder.mkdir()
    (folder / "reliability_contract.json").write_text("old")
    return folder


@pytest.mark.parametrize("swaps", [True, False])
def test_a_folder_takes_the_place_of_another_with_and_without_swapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    out = old_output(tmp_path / "out")
    if not swaps:
        monkeypatch.setattr(staging_module, "swap", lambda one, other: False)
    with staged_directory(out, overwrite=True) as staging:
        (staging / "reliability_contract.json").write_text("new")
    assert _everything(tmp_path) == {"out/reliability_contract.json": "new"}


def test_leftovers_of_a_killed_process_are_removed_and_those_of_a_living_one_are_not(tmp_path: Path) -> None:
    dead, other = tmp_path / ".out.partial-dead", tmp_path / ".outer.partial-dead"
    for folder in (dead, other):
        folder.mkdir()
        (folder / "file").write_text("half")
    with staged_directory(tmp_path / "out") as living:
        (living / "file").write_text("first")
        assert not dead.exists() and other.exists()
        with staged_directory(tmp_path / "out", overwrite=True) as staging:
            assert living.exists()
            (staging / "reliability_contract.json").write_text("second")
        assert _everything(tmp_path / "out") == {"reliability_contract.json": "second"}
        shutil.rmtree(tmp_path / "out")
    assert _everything(tmp_path / "out") == {"file": "first"}


def test_a_killed_process_keeps_no_lock(tmp_path: Path) -> None:
    script = f"""
import os, signal
from optimum_cpp.staging import staged_directory
with staged_directory({str(tmp_path / "out")!r}) as staging:
    (staging / "file").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == -signal.SIGKILL
    assert [path.name[:13] for path in tmp_path.iterdir()] == [".out.partial-"]
    with staged_directory(tmp_path / "out") as staging:
        (staging / "file").write_text("new")
    assert _everything(tmp_path) == {"out/file": "new"}


def test_a_folder_that_stands_aside_comes_back(tmp_path: Path) -> None:
    """As a kill between the two renames leaves it where folders cannot be swapped."""
    aside = tmp_path / ".out.old-x"
    aside.mkdir()
    old_output(aside / "out")
    with pytest.raises(UsageError, match="--overwrite"), staged_directory(tmp_path / "out"):
        pass
    assert _everything(tmp_path) == {"out/reliability_contract.json": "old"}


def test_of_two_writers_the_second_to_end_is_refused_or_replaces_the_first_whole(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not"), staged_directory(tmp_path / "out") as slow:
        (slow / "slow").write_text("slow")
        with staged_directory(tmp_path / "out") as quick:
            (quick / "reliability_contract.json").write_text("quick")
    assert _everything(tmp_path) == {"out/reliability_contract.json": "quick"}
    with staged_directory(tmp_path / "out", overwrite=True) as slow:
        (slow / "slow").write_text("slow")
        with staged_directory(tmp_path / "out", overwrite=True) as quick:
            (quick / "reliability_contract.json").write_text("quicker")
    assert _everything(tmp_path) == {"out/slow": "slow"}


def test_a_place_filled_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the check and the move."""
    place = staging_module._place

    def late(staging: Path, path: Path) -> None:
        old_output(path)
        place(staging, path)

    monkeypatch.setattr(staging_module, "_place", late)
    with pytest.raises(UsageError, match="meanwhile"), staged_directory(tmp_path / "out") as staging:
        (staging / "file").write_text("new")
    assert _everything(tmp_path) == {"out/reliability_contract.json": "old"}


def test_a_folder_that_may_not_be_written_in_is_refused(tmp_path: Path) -> None:
    """As somebody who has no rights there: root is never refused."""
    closed = tmp_path / "closed"
    closed.mkdir()
    script = f"""
import os
from optimum_cpp.errors import UsageError
from optimum_cpp.staging import staged_directory
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    with staged_directory({str(closed / "out")!r}):
        print("written")
except UsageError as error:
    print(error)
"""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    closed.chmod(0o555)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd="/")
    assert "cannot be written in" in found.stdout, found
    assert list(closed.iterdir()) == []
