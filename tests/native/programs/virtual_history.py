"""A random history of virtual memory management, which compares books and truth as it goes."""

import os
import random
import sys

from tests.native.programs import virtual_client as vm

PLACES = 24


class History:
    """What a program holds: handles with their releases due, and mappings by place."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.base = vm.reserve(PLACES * vm.PAGE)
        self.handles: dict[int, tuple[int, int]] = {}  # handle: pages, releases due
        self.mapped: dict[int, tuple[int, int]] = {}  # place: pages, handle
        self.refused = 0

    def _address(self, place: int) -> int:
        return self.base + place * vm.PAGE

    def create(self) -> None:
        pages = self.random.randint(1, 6)
        code, handle = vm.create(pages * vm.PAGE, shared=self.random.random() < 0.3)
        assert code in (0, 2), code
        self.refused += code == 2
        if code == 0:
            self.handles[handle] = pages, 1

    def release(self) -> None:
        if self.handles:
            handle = self.random.choice([*self.handles])
            pages, due = self.handles.pop(handle)
            assert vm.release(handle) == 0
            if due > 1:
                self.handles[handle] = pages, due - 1

    def map(self) -> None:
        """Where there may be something already: then the driver refuses."""
        if not self.handles:
            return
        handle = self.random.choice([*self.handles])
        pages, _ = self.handles[handle]
        place = self.random.randrange(PLACES)
        if vm.map_at(self._address(place), pages * vm.PAGE, handle) == 0:
            self.mapped[place] = pages, handle

    def retain(self) -> None:
        code, handle = vm.retain(self._address(self.random.randrange(PLACES)) + 4096)
        if code == 0:
            pages, due = self.handles.get(handle, (0, 0))
            known = next(size for size, each in self.mapped.values() if each == handle)
            self.handles[handle] = known, due + 1
            assert pages in (0, known)

    def unmap(self) -> None:
        """Any range: the driver refuses what is not whole mappings without a gap."""
        first, count = self.random.randrange(PLACES), self.random.randint(1, 8)
        if vm.unmap(self._address(first), count * vm.PAGE) == 0:
            for place in [*self.mapped]:
                if first <= place < first + count:
                    del self.mapped[place]

    def unmap_one(self) -> None:
        if self.mapped:
            place = self.random.choice([*self.mapped])
            pages, _ = self.mapped.pop(place)
            assert vm.unmap(self._address(place), pages * vm.PAGE) == 0

    def mistake(self) -> None:
        assert vm.release(self.random.randrange(1 << 40) | 1) != 0
        assert vm.create(vm.PAGE + 1)[0] in (1, 2)

    def share(self) -> None:
        """Import what this very process has exported: costs nothing, and is let go first."""
        if self.handles:
            descriptor = vm.export(self.random.choice([*self.handles]))
            if descriptor > 0:
                code, handle = vm.take(descriptor)
                assert (code, vm.release(handle)) == (0, 0)
                os.close(descriptor)

    def step(self) -> None:
        steps = (
            self.create,
            self.create,
            self.release,
            self.map,
            self.map,
            self.retain,
            self.unmap,
            self.unmap_one,
            self.mistake,
            self.share,
        )
        self.random.choice(steps)()

    def end(self) -> None:
        while self.mapped:
            self.unmap_one()
        while self.handles:
            self.release()
        assert vm.free_address(self.base, PLACES * vm.PAGE) == 0


def run(seed: int, steps: int, *, alone: bool) -> int:
    """How often memory was refused. alone: nobody else uses the container or its GPU."""
    assert vm.begin() == 0
    history = History(seed)
    for _ in range(steps):
        history.step()
        books, truth = vm.held()
        assert not alone or books == truth, (books, truth)
    history.end()
    assert not alone or vm.held() == (0, 0)
    return history.refused


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), alone=False)
