"""Progress bars by tqdm, in terminals and notebooks, where it is installed."""


class _None:
    """No bar."""

    at = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def step(self, seen):
        pass


class _Bar:
    def __init__(self, tqdm, total, unit):
        self._bar = tqdm(total=total, unit=unit, unit_scale=unit == "B")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._bar.close()

    def step(self, seen):
        """Advance by one, with numbers next to the bar."""
        self._bar.set_postfix(seen, refresh=False)
        self._bar.update()

    def at(self, done, total):
        """So much of so much."""
        self._bar.total = total
        self._bar.update(done - self._bar.n)


def bar(total, unit, shown):
    """A bar, or one that shows nothing: if it is not wanted, or tqdm is not there."""
    if not shown:
        return _None()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _None()
    return _Bar(tqdm, total, unit)
