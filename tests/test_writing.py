"""Files and folders that are replaced in one step, and what is left of processes that were killed."""

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import splinefm as sf
from splinefm import _files as _writing
from splinefm._files import new_file, record_replacements, replacing, replacing_folder

ABANDONED = ".m.sfm.0123456789abcdef.part"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def run_and_kill(code):
    """Run code that ends by killing itself, in a process of its own."""
    text = "import os, signal\nfrom pathlib import Path\nfrom splinefm._files import *\n" + textwrap.dedent(code)
    end = "\nos.kill(os.getpid(), signal.SIGKILL)\n"
    done = subprocess.run([sys.executable, "-c", text + end], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


class TestFiles:
    def test_what_a_killed_process_has_left_is_removed_by_the_next(self, tmp_path):
        target = tmp_path / "m.sfm"
        run_and_kill(f"file = replacing(Path({str(target)!r}))\nfile.__enter__().write(b'half')")
        assert len(names(tmp_path)) == 1
        with replacing(target) as file:
            assert len(names(tmp_path)) == 1
            file.write(b"whole")
        assert names(tmp_path) == ["m.sfm"] and target.read_bytes() == b"whole"

    def test_looking_whether_a_file_can_be_written_removes_it_too(self, tmp_path):
        (tmp_path / ABANDONED).write_bytes(b"half")
        _writing.check_writable(tmp_path / "m.sfm")
        assert names(tmp_path) == []

    def test_what_another_writes_now_is_left_alone(self, tmp_path):
        target = tmp_path / "m.sfm"
        with replacing(target) as first:
            first.write(b"first")
            with replacing(target) as second:
                second.write(b"second")
            assert target.read_bytes() == b"second"
        assert target.read_bytes() == b"first" and names(tmp_path) == ["m.sfm"]

    def test_many_at_once(self, tmp_path):
        target, failed = tmp_path / "m.sfm", []

        def write(content):
            for _ in range(20):
                try:
                    with replacing(target) as file:
                        file.write(content * 1000)
                except BaseException as error:
                    failed.append(error)

        threads = [threading.Thread(target=write, args=(bytes([i]),)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed and names(tmp_path) == ["m.sfm"] and len(set(target.read_bytes())) == 1

    @pytest.mark.parametrize(
        "name", [".m.sfm.0123.part", ".n.sfm.0123456789abcdef.part", "m.sfm.0123456789abcdef.part"]
    )
    def test_other_names_are_left_alone(self, name, tmp_path):
        (tmp_path / name).write_bytes(b"mine")
        with replacing(tmp_path / "m.sfm") as file:
            file.write(b"whole")
        assert (tmp_path / name).read_bytes() == b"mine"

    def test_a_link_of_that_name_leads_nowhere(self, tmp_path):
        (tmp_path / "precious").write_bytes(b"mine")
        (tmp_path / ABANDONED).symlink_to(tmp_path / "precious")
        with replacing(tmp_path / "m.sfm") as file:
            file.write(b"whole")
        assert (tmp_path / "precious").read_bytes() == b"mine"

    @pytest.mark.parametrize(
        ("code", "kind", "advice"),
        [
            (errno.ENOSPC, OSError, "make room"),
            (errno.EACCES, PermissionError, "permissions"),
            (errno.EIO, OSError, "disk"),
        ],
        ids=["full", "refused", "broken"],
    )
    @pytest.mark.parametrize("step", ["fsync", "replace"])
    def test_errors_name_file_reason_and_a_way_out(self, step, code, kind, advice, tmp_path, monkeypatch):
        def fail(*arguments):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, step, fail)
        text = rf"cannot write '.*m\.sfm': {os.strerror(code)}; .*{advice}.*, or choose another folder"
        with pytest.raises(kind, match=text) as told, replacing(tmp_path / "m.sfm") as file:
            file.write(b"whole")
        assert told.value.errno == code and names(tmp_path) == []

    def test_errors_of_the_body_are_not_blamed_on_the_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no\.csv"), replacing(tmp_path / "m.sfm"):
            (tmp_path / "no.csv").read_bytes()

    def test_a_folder_that_cannot_be_flushed_is_told(self, tmp_path, monkeypatch):
        flush = os.fsync

        def fail(descriptor):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            flush(descriptor)

        monkeypatch.setattr(os, "fsync", fail)
        with (
            pytest.raises(OSError, match=f"while flushing it: {re.escape(repr(str(tmp_path)))}"),
            replacing(tmp_path / "m") as file,
        ):
            file.write(b"whole")

    def test_schema_files_have_the_usual_permissions(self, tmp_path):
        (tmp_path / "plain").write_text("")
        sf.Schema([sf.Categorical("c")]).save(tmp_path / "s.toml")
        assert (tmp_path / "s.toml").stat().st_mode == (tmp_path / "plain").stat().st_mode
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            sf.Schema([sf.Categorical("c")]).save(tmp_path / "no" / "s.toml")


class TestFolders:
    @pytest.fixture(params=["in one step", "in two steps"])
    def steps(self, request, monkeypatch):
        if request.param == "in two steps":
            monkeypatch.setattr(_writing, "_exchange", lambda one, other: False)

    def fill(self, target, name):
        with replacing_folder(target) as folder, new_file(folder / name) as file:
            file.write(b"content")

    def test_a_folder_is_replaced_as_a_whole(self, steps, tmp_path):
        for name in ("a", "b"):
            self.fill(tmp_path / "out", name)
            assert names(tmp_path) == ["out"] and names(tmp_path / "out") == [name]

    def test_an_error_leaves_the_old_one(self, steps, tmp_path):
        self.fill(tmp_path / "out", "a")
        with pytest.raises(ZeroDivisionError), replacing_folder(tmp_path / "out") as folder:
            (folder / "b").write_bytes(b"")
            raise ZeroDivisionError
        assert names(tmp_path) == ["out"] and names(tmp_path / "out") == ["a"]

    def test_what_a_killed_process_has_left_is_removed_by_the_next(self, tmp_path):
        target = str(tmp_path / "out")
        run_and_kill(f"made = replacing_folder(Path({target!r}))\n(made.__enter__() / 'half').write_bytes(b'')")
        assert len(names(tmp_path)) == 1
        self.fill(tmp_path / "out", "a")
        assert names(tmp_path) == ["out"]

    def test_a_crash_between_two_steps_is_mended_by_the_next(self, tmp_path):
        self.fill(tmp_path / "out", "a")
        (tmp_path / "out").rename(tmp_path / ".out.0123456789abcdef.old")
        with pytest.raises(ZeroDivisionError), replacing_folder(tmp_path / "out"):
            raise ZeroDivisionError
        assert names(tmp_path) == ["out"] and names(tmp_path / "out") == ["a"]

    def test_files_in_it_must_be_new(self, tmp_path):
        (tmp_path / "a").write_bytes(b"")
        with pytest.raises(FileExistsError, match=r"cannot write .*a.: File exists"), new_file(tmp_path / "a"):
            pass


def test_the_description_of_a_libffm_model_says_which_file_it_is_of(tmp_path):
    import hashlib

    table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    for format in ("text", "binary"):
        sf.export_libffm(fitted, tmp_path / "m.ffm", format=format)
        described = json.loads((tmp_path / "m.ffm.json").read_text())["sha256"]
        assert described == hashlib.sha256((tmp_path / "m.ffm").read_bytes()).hexdigest()
    assert names(tmp_path) == ["m.ffm", "m.ffm.json"]


def test_only_what_has_its_name_counts_as_written(tmp_path, monkeypatch):
    with record_replacements() as written:
        with replacing(tmp_path / "a") as file:
            file.write(b"new")
        with replacing_folder(tmp_path / "folder"):
            pass
        monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "b") as file:
            file.write(b"never")
        assert written() == [tmp_path / "a", tmp_path / "folder"]


def test_locks_are_not_needed(tmp_path, monkeypatch):
    """As on Windows: nothing is removed for others then, but files are replaced as ever."""
    monkeypatch.setattr(_writing, "_HAS_LOCKS", False)
    (tmp_path / ABANDONED).write_bytes(b"half")
    with replacing(tmp_path / "m.sfm") as file:
        file.write(b"whole")
    with replacing_folder(tmp_path / "out") as folder:
        (folder / "a").write_bytes(b"")
    assert names(tmp_path) == [ABANDONED, "m.sfm", "out"] and Path(tmp_path / "m.sfm").read_bytes() == b"whole"
