"""Files: opened without blocking on pipes and devices, and replaced in one step.

After an error or a crash, there is the old file or the new one, never half of one.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

# Opening files that others may have put there: pipes and devices, which would block or never end, are errors.

MAX_TEXT_BYTES = 1 << 28
"""The largest text file that is read as a whole: 256 MiB, a schema with millions of category names."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read it; anything else raises an error that says what it is.

    The type is read from the opened file, so that no other file can take its place in between.

    Examples
    --------
    >>> open_regular(Path(os.devnull))
    Traceback (most recent call last):
    OSError: '/dev/null' is a device, not a regular file; copy its content to a file, and pass the path of that
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(f"{str(path)!r} is a folder; pass the path of a file in it")
        if not stat.S_ISREG(mode):
            kind = "a named pipe" if stat.S_ISFIFO(mode) else "a device"
            raise OSError(
                f"{str(path)!r} is {kind}, not a regular file; copy its content to a file, and pass the path of that"
            )
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: Path, what: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Read a whole text file, of which a larger one is an error: it is not what it should be.

    Parameters
    ----------
    path : Path
        A regular file, in UTF-8.
    what : str
        What it should be, for the message, such as "a schema file".
    max_bytes : int
        The most bytes that are read.
    """
    with open_regular(path) as file:
        too_large = os.fstat(file.fileno()).st_size > max_bytes
        content = b"" if too_large else file.read(max_bytes + 1)  # it may grow meanwhile
    if too_large or len(content) > max_bytes:
        raise ValueError(f"{str(path)!r} is larger than {max_bytes:,} bytes, the most that {what} can have")
    return content.decode("utf-8").replace("\r\n", "\n")


# Files and folders that are replaced in one step: after an error or a crash, there is the old one or the new one.
#
# Whatever is written goes to a temporary file beside its target, which takes the target's name once all of it is on
# disk. A process that is killed leaves the temporary file; the next write of the same target removes it. Such a
# file is told from one that another process is writing by a lock, which the system releases when a process ends.

try:
    import fcntl

    _HAS_LOCKS = True
except ImportError:  # Windows
    _HAS_LOCKS = False

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_PART, _OLD = "part", "old"
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "change the permissions"),
}
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
# What is about to take the name of a target, while a recorder is active.
_notes: list[tuple[Path, os.stat_result]] | None = None


@contextmanager
def record_replacements() -> Iterator[Callable[[], list[Path]]]:
    """Yield a function that returns the files and folders that were replaced since the beginning of the context.

    An interrupt can come between any two steps, so only what now has the name of a target is sure to be written.
    """
    global _notes
    notes = _notes = []
    try:
        yield lambda: list(dict.fromkeys(target for target, new in notes if _is_at(target, new)))
    finally:
        _notes = None


def _note(new: Path, target: Path) -> None:
    if _notes is not None:
        _notes.append((target, new.stat()))


def _is_at(path: Path, known: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), known)
    except FileNotFoundError:
        return False


def check_destination(path: Path, example: str = "model.sfm") -> Path:
    """Return the file to write, with links resolved; raise an error if it cannot be written."""
    try:
        target = path.resolve()
    except RuntimeError as error:  # a link to itself, before Python 3.13
        raise OSError(f"cannot save to {str(path)!r}: {error}") from error
    if target.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; add a file name, such as {str(path / example)!r}")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"cannot save to {str(path)!r}: there is no folder {str(target.parent)!r}; create it first"
        )
    if target.exists() and not (target.is_file() and os.access(target, os.W_OK)):
        raise PermissionError(f"{str(path)!r} cannot be overwritten; choose another name or change its permissions")
    return target


def check_writable(path: Path) -> Path:
    """Return the file to write after creating and removing a file beside it; call it before long computations.

    Only a real attempt is reliable: permissions say nothing about read-only file systems and privileged users.
    """
    target = check_destination(path)
    with _created_beside(target) as (temporary, _):
        temporary.unlink(missing_ok=True)
    return target


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file that replaces the target once it is completely on disk, or is removed on an error."""
    with _created_beside(target) as (temporary, file):
        try:
            yield file
            _finish(file, target)
            file.close()
            with _explained(target):
                if target.exists():
                    shutil.copymode(target, temporary)
                _note(temporary, target)
                temporary.replace(target)
        except BaseException:
            with suppress(OSError):  # the error that led here says more
                temporary.unlink(missing_ok=True)
            raise
    sync_folder(target.parent)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that must not exist yet, in a folder of `replacing_folder`; it is on disk at the end."""
    with _explained(path):
        raw = _File(path, path)
    with cast(BinaryIO, io.BufferedRandom(raw)) as file:
        yield file
        _finish(file, path)


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder that replaces the target once all of it is on disk, or is removed on an error.

    On Linux and macOS, the names of the two are exchanged in one step. Elsewhere, and on file systems that cannot do
    this, a crash between two steps leaves the old folder under another name, which the next call gives back.
    """
    remove_abandoned(target.parent, _temporary_names(target), target)
    temporary, old = (target.with_name(_name(target, end)) for end in (_PART, _OLD))
    with _explained(target):
        temporary.mkdir()
    held = hold(temporary)
    try:
        yield temporary
        sync_folder(temporary)
        put_in_place(temporary, target, old)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        release(held)
    sync_folder(target.parent)


def put_in_place(new: Path, target: Path, old: Path) -> None:
    """Give a folder the name of another, which is removed; `old` is a name for where this takes two steps."""
    with _explained(target):
        _note(new, target)
        if not target.exists():
            new.rename(target)
            return
        if not _exchange(new, target):
            _rename_twice(new, target, old)
    shutil.rmtree(new, ignore_errors=True)  # by now the old one
    shutil.rmtree(old, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder, so that a new name survives a power failure; Windows has no such call."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that can be written but not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot do this
            raise OSError(error.errno, f"{os.strerror(error.errno or 0)} while flushing it", str(folder)) from error
    finally:
        os.close(descriptor)


# Locks, by which temporary files of processes that were killed are known


def hold(path: Path) -> int | None:
    """Lock a file or folder until `release`, or the end of this process; None where that cannot be done."""
    if not _HAS_LOCKS:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def release(descriptor: int | None) -> None:
    """Release what `hold` returned."""
    if descriptor is not None:
        os.close(descriptor)


def remove_abandoned(folder: Path, pattern: re.Pattern[str], target: Path | None = None) -> None:
    """Remove files and folders whose names match the pattern and that no process holds.

    A folder that was moved away from the target returns there if nothing has taken its place.
    """
    found: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        found += [entry.name for entry in entries if pattern.fullmatch(entry.name)]
    for name in found:
        held = hold(folder / name)
        if held is not None:
            try:
                _remove(folder / name, target)
            finally:
                release(held)


def _remove(path: Path, target: Path | None) -> None:
    with suppress(OSError):  # it is only in the way
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
        elif target is not None and path.suffix == f".{_OLD}" and not target.exists():
            path.rename(target)
        else:
            shutil.rmtree(path, ignore_errors=True)


# Temporary files


class _File(io.FileIO):
    """A new file whose errors name the file that the user asked for."""

    def __init__(self, path: Path, target: Path) -> None:
        super().__init__(path, "x+")
        self._target = target

    def write(self, data: Any, /) -> int:
        with _explained(self._target):
            return super().write(data)

    def truncate(self, size: int | None = None, /) -> int:
        with _explained(self._target):
            return super().truncate(size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        with _explained(self._target):
            return super().readinto(buffer)


@contextmanager
def _created_beside(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield a new file beside the target and its path; it is locked until the end."""
    remove_abandoned(target.parent, _temporary_names(target))
    path, raw = _create(target)
    while not _lock(raw, path):  # another process took it for abandoned before it was locked
        raw.close()
        path, raw = _create(target)
    # The lock lasts until the copy of the descriptor is closed, too: the file has its new name then.
    held = os.dup(raw.fileno()) if _HAS_LOCKS else None
    try:
        with cast(BinaryIO, io.BufferedRandom(raw)) as file:
            yield path, file
    finally:
        release(held)


def _create(target: Path) -> tuple[Path, _File]:
    path = target.with_name(_name(target, _PART))
    try:
        return path, _File(path, target)
    except OSError as error:
        kind = PermissionError if isinstance(error, PermissionError) else OSError
        failed = kind(f"the folder {str(path.parent)!r} is not writable ({error.strerror}); choose another")
        failed.errno = error.errno
        raise failed from error


def _lock(raw: _File, path: Path) -> bool:
    """Lock a file that was just created; returns whether it is still there."""
    if not _HAS_LOCKS:
        return True
    with suppress(OSError):  # file systems without locks, whose files are never taken for abandoned
        fcntl.flock(raw, fcntl.LOCK_EX)
    try:
        return os.path.samestat(os.fstat(raw.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def _finish(file: BinaryIO, target: Path) -> None:
    file.flush()
    with _explained(target):
        os.fsync(file.fileno())


def _name(target: Path, end: str) -> str:
    return f".{target.name[:32]}.{secrets.token_hex(8)}.{end}"


def _temporary_names(target: Path) -> re.Pattern[str]:
    return re.compile(rf"\.{re.escape(target.name[:32])}\.[0-9a-f]{{16}}\.({_PART}|{_OLD})")


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Add the target, the reason and a way out to errors of the system."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # explained already
            raise
        advice = _ADVICE.get(error.errno or 0, "check the disk")
        failed = type(error)(f"cannot write {str(target)!r}: {error.strerror}; {advice}, or choose another folder")
        failed.errno = error.errno
        raise failed from error


# Folders


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step; returns False where that cannot be done."""
    if os.name != "posix":
        return False
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = library.renamex_np(first, second, _EXCHANGE)
        else:
            here = -100  # AT_FDCWD
            failed = library.renameat2(here, first, here, second, _EXCHANGE)
    except AttributeError:  # an older system
        return False
    if failed and ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return not failed


def _rename_twice(temporary: Path, target: Path, old: Path) -> None:
    held = hold(target)  # no other process may take it for abandoned in between
    try:
        target.rename(old)
        try:
            temporary.rename(target)
        except BaseException:
            old.rename(target)
            raise
    finally:
        release(held)
