"""Snapshots: a file is copied to a folder of the server, verified there, and mapped by all workers.

So nobody can change a file under the workers that have mapped it, all of them load the same bytes, and the checksums
are verified once for all.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from splinefm.serve.arms.loaded import Published, check_compatible, contract, verify
from splinefm.serve.settings import ArmSetting

_BLOCK = 1 << 20


class Snapshots:
    """The verified copies of all files.

    Parameters
    ----------
    folder : path
        A folder that belongs to the server.
    background : str, optional
        Path of the rows that explanations compare with; every model must take them.
    """

    def __init__(self, folder: Path, background: str | None = None) -> None:
        self._folder, self._background = folder, background
        self.current: dict[str, Published] = {}
        self.contracts: dict[str, dict[str, Any]] = {}

    def publish(self, arm: ArmSetting) -> Published | None:
        """Copy and verify the files of an arm; None if they are those that are served already.

        The snapshot becomes `current` by `accept`, once the workers have it.

        Raises
        ------
        ValueError, OSError
            If a file is missing, damaged, or does not fit to clients of the one before.
        """
        before = self.current.get(arm.name)
        generation = 1 if before is None else before.generation + 1
        copies: list[Path] = []
        try:
            model, sha256 = self._copy(arm.model, f"{arm.name}.{generation}.model", copies)
            index, index_sha256 = None, None
            if arm.index is not None:
                index, index_sha256 = self._copy(arm.index, f"{arm.name}.{generation}.index", copies)
            if before is not None and (before.sha256, before.index_sha256) == (sha256, index_sha256):
                _remove(copies)
                return None
            try:
                promised = contract(verify(model, index, self._background))
            except ValueError as error:  # which names our copies
                files = " and ".join(repr(path) for path in (arm.model, arm.index) if path is not None)
                raise ValueError(f"cannot serve {files}, of which copies were read: {error}") from error
            if before is not None:
                _check_fits(self.contracts[arm.name], promised, arm.model)
            self.contracts.setdefault(arm.name, promised)
        except BaseException:
            _remove(copies)
            raise
        return Published(
            arm.name, str(model), None if index is None else str(index), sha256, index_sha256, arm.model, generation
        )

    def accept(self, published: Published) -> None:
        """Serve a snapshot; the one before is removed, and lives as long as somebody has it mapped."""
        before = self.current.get(published.arm)
        self.current[published.arm] = published
        if before is not None:
            self.discard(before)

    def discard(self, published: Published) -> None:
        """Remove a snapshot."""
        _remove([Path(path) for path in (published.model, published.index) if path is not None])

    def _copy(self, source: str, name: str, copies: list[Path]) -> tuple[Path, str]:
        """Copy a file, and return where to and the checksum of what was copied."""
        path = Path(source)
        if not path.is_file():
            raise FileNotFoundError(
                f"no file {source!r}; Fitted.save, ItemIndex.save and splinefm fit write such files"
            )
        target = self._folder / f"{name}{path.suffix}"
        copies.append(target)
        digest = hashlib.sha256()
        with path.open("rb") as file, target.open("wb") as out:
            while block := file.read(_BLOCK):
                digest.update(block)
                out.write(block)
        return target, digest.hexdigest()


def check_arms_agree(contracts: dict[str, dict[str, Any]]) -> None:
    """Raise where the answers of arms that are shown would not have the same form."""
    first, *others = contracts.items()
    for name, other in others:
        for what in ("classes", "scores per row"):
            if other[what] != first[1][what]:
                raise ValueError(
                    f"arms {first[0]!r} and {name!r} differ in their {what} ({first[1][what]} and {other[what]}); "
                    "arms of one split answer the same question"
                )


def _check_fits(old: dict[str, Any], new: dict[str, Any], source: str) -> None:
    try:
        check_compatible(old, new)
    except ValueError as error:
        raise ValueError(f"{source!r} is not served: {error}") from None


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
