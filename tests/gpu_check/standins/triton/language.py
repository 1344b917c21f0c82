class constexpr:  # noqa: N801 - as Triton calls it
    pass


class Lanes:
    """Numbers of elements; with a tensor before it, pointers."""

    def __init__(self, tensor=None):
        self.tensor = tensor

    def pointing_into(self, tensor):
        return Lanes(tensor)

    def __radd__(self, first):
        assert isinstance(first, int)
        return self

    def __lt__(self, size):
        assert isinstance(size, int)
        return self


def program_id(axis):
    return axis


def arange(first, count):
    assert first == 0
    assert count & (count - 1) == 0, "a power of two"
    return Lanes()


def load(pointers, mask=None):
    assert isinstance(mask, Lanes)
    return pointers.tensor.value


def store(pointers, value, mask=None):
    assert isinstance(mask, Lanes)
    pointers.tensor.value = value
