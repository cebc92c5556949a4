"""What a search tried: the rows of `fitted.search`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchEntry:
    """A setting that a fit has tried, and how good it was.

    Parameters
    ----------
    model : str
        The model.
    basis : str
        The bases of the numbers.
    l2, smoothness : float or None
        The penalties of the columns; crosses can have others.
    n_columns : int
        The number of columns that it uses.
    crosses : tuple of str
        The crosses that it has.
    epochs : int
        The most epochs.
    loss, error : float
        The mean loss of the rows that it was judged by, and its standard error.
    folds : int
        On how many parts of the rows it was judged; those of a sample count as one.
    seconds : float
        The time of its fits.
    is_chosen : bool
        Whether the fit has chosen it.
    """

    model: str
    basis: str
    l2: float | None
    smoothness: float | None
    n_columns: int
    crosses: tuple[str, ...]
    epochs: int
    loss: float
    error: float
    folds: int
    seconds: float
    is_chosen: bool = False

    def __str__(self) -> str:
        """Return the setting in a few words.

        Examples
        --------
        >>> print(SearchEntry("FM(k=4)", "8 segments", 1e-4, 0.01, 3, (), 30, 0.5, 0.01, 4, 1.0))
        FM(k=4), 8 segments, l2 0.0001, smoothness 0.01, 30 epochs
        """
        penalties = {"l2": self.l2, "smoothness": self.smoothness}
        words = [f"{name} {value:g}" for name, value in penalties.items() if value is not None]
        parts = [self.model, self.basis, *words, f"{self.epochs} epochs"]
        parts += [f"crosses {', '.join(self.crosses)}"] if self.crosses else []
        return ", ".join(part for part in parts if part)
