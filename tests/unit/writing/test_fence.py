"""Renames that cannot be made any more once the lock is lost."""

import shutil

import pytest

from walreplay.errors import TargetError
from walreplay.writing.move import Fence


@pytest.fixture
def root(tmp_path):
    target = tmp_path / "mirror"
    (target / "_walreplay").mkdir(parents=True)
    (target / "s" / "a").mkdir(parents=True)
    (target / "s" / "a" / "rows").write_text("")
    return target


def fence(root, name="one", *, up=True):
    found = Fence(str(root), str(root / "_walreplay"), name)
    if up:
        found.put_up(lambda: None)
    return found


def test_a_folder_is_renamed_and_nothing_is_left_behind(root):
    own = fence(root)
    own.rename(str(root / "s" / "a"), str(root / "other" / "b"))
    own.take_down()
    assert (root / "other" / "b" / "rows").exists()
    assert not (root / "s" / "a").exists()
    assert list((root / "_walreplay").iterdir()) == []


def test_one_that_has_gone_already_is_left_alone(root):
    fence(root).rename(str(root / "s" / "gone"), str(root / "s" / "b"))
    assert not (root / "s" / "b").exists()


def test_without_the_lock_nothing_is_renamed_at_whatever_moment_that_is_lost(root):
    late = fence(root)
    fence(root, "two").take_down_others()
    for source in ("a", "gone"):
        with pytest.raises(TargetError, match="has lost what it needs"):
            late.rename(str(root / "s" / source), str(root / "s" / "b"))
    # The system call itself: whatever has been looked at before.
    with pytest.raises(FileNotFoundError):
        late._through(str(root / "s" / "a")).rename(late._through(str(root / "s" / "b")))
    assert (root / "s" / "a" / "rows").exists()


def test_what_cannot_be_removed_of_another_run_is_named_and_once_it_is_the_run_goes_on(root):
    fence(root, "two")
    (left,) = (folder for folder in (root / "_walreplay").rglob("two"))
    (left / "a file").touch()
    with pytest.raises(TargetError, match="cannot be removed") as caught:
        fence(root).take_down_others()
    assert (caught.value.path, caught.value.remedy) == (str(left), "Remove it, and run again")
    shutil.rmtree(left)
    fence(root).take_down_others()


def test_a_fence_that_is_put_up_too_late_is_not_used(root):
    late = fence(root, up=False)
    with pytest.raises(TargetError):
        late.put_up(_lost)


def _lost():
    raise TargetError("another has taken over")


def test_a_folder_is_not_put_into_one_that_is_there(root):
    (root / "s" / "b").mkdir()
    (root / "s" / "b" / "other").write_text("")
    with pytest.raises(TargetError, match="something is there"):
        fence(root).rename(str(root / "s" / "a"), str(root / "s" / "b"))
    assert (root / "s" / "a" / "rows").exists()


@pytest.mark.parametrize("linked", ["mirror", "_walreplay"])
def test_links_lead_where_they_lead(root, tmp_path, linked):
    place = root if linked == "mirror" else root / "_walreplay"
    elsewhere = tmp_path / "disk" / "deep" / "down"
    elsewhere.parent.mkdir(parents=True)
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    own = fence(root)
    own.rename(str(root / "s" / "a"), str(root / "s" / "b"))
    assert (root / "s" / "b" / "rows").exists()
    fence(root, "two").take_down_others()
    with pytest.raises(TargetError, match="has lost what it needs"):
        own.rename(str(root / "s" / "b"), str(root / "s" / "a"))


def test_names_are_names_and_no_paths(root):
    odd = root / "s" / "sp ace %2F é \\ 'q' ..x"
    fence(root).rename(str(root / "s" / "a"), str(odd))
    assert (odd / "rows").exists()
