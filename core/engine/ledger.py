"""Live bytes of a torch computation by category, as its ops run.

Every storage is followed from birth to death and classified afterwards: that a tensor is a
gradient is only known once it has been accumulated, yet it counts as one from its birth.
"""

import weakref
from collections.abc import Iterable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from core.events import CATEGORIES


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the distinct storages behind some tensors."""
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


_Entry = tuple[str, str, list[int], list[int]]  # phase, op, records born, records died


class Ledger(TorchDispatchMode):
    """Follows every storage that exists on entry or is born inside.

    Call `mark(phase, op)` before an op begins; `samples()` afterwards gives the live bytes by
    category around each dispatched operation, under the op that was marked. Saved tensors are seen
    through the ledger's own hooks, so it must surround forward and backward.
    """

    def __init__(
        self, names: tuple[str, ...] = CATEGORIES, **categories: Iterable[torch.Tensor]
    ) -> None:
        """Categories of tensors that exist already, as in `weights=model.parameters()`; `names`
        of all that there may be.
        """
        super().__init__()
        self._names = names
        self._known = {name: list(tensors) for name, tensors in categories.items()}
        self._category: dict[int, str] = {}  # record -> category; absent: temporary
        self._size: dict[int, int] = {}  # record -> bytes
        self._born_in: dict[int, str] = {}  # record -> phase
        self._alive: dict[int, tuple[int, weakref.ref]] = {}  # storage address -> record, watcher
        self._log: list[_Entry] = []
        self._label = ("", "")
        self._hooks: list = []

    # -- what the caller says -------------------------------------------------------------------

    def mark(self, phase: str, op: str) -> None:
        """Whatever runs from now on belongs to this op of this phase; to none if both are empty."""
        self._label = (phase, op)
        self._log.append(self._entry())

    def classify(self, tensors: Iterable[torch.Tensor], category: str) -> None:
        """Say what some living tensors are."""
        for tensor in tensors:
            self._category[self._record(tensor)] = category

    def keep(self, phases: tuple[str, ...], but: Iterable[torch.Tensor] = ()) -> None:
        """Say that what was born in these phases and lives now is kept for backward.

        For tensors that no saved-tensor hook shows: what a checkpointed block keeps of itself, and
        what it has computed again.
        """
        others = {tensor.untyped_storage()._cdata for tensor in but}
        for address, (record, _) in self._alive.items():
            if self._born_in[record] in phases and address not in others:
                self._category.setdefault(record, "activations")

    # -- what torch says ------------------------------------------------------------------------

    def __enter__(self) -> "Ledger":
        self._log.append(("", "", [], []))
        for category, tensors in self._known.items():
            self.classify(tensors, category)
        for parameter in self._known.get("weights", ()):
            if not parameter.requires_grad:
                continue
            self._hooks.append(
                parameter.register_post_accumulate_grad_hook(
                    lambda p: self.classify([p.grad], "gradients")
                )
            )
        saved = torch.autograd.graph.saved_tensors_hooks(self._saved, lambda t: t)
        saved.__enter__()
        self._saving = saved
        super().__enter__()
        return self

    def __exit__(self, *why: object) -> None:
        super().__exit__(*why)
        self._saving.__exit__(*why)
        self._log.append(self._entry())
        for hook in self._hooks:
            hook.remove()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        out = func(*args, **(kwargs or {}))
        self._log.append(self._entry())
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self._record(tensor)
        return out

    def _saved(self, tensor: torch.Tensor) -> torch.Tensor:
        self._category.setdefault(self._record(tensor), "activations")
        return tensor

    def _record(self, tensor: torch.Tensor) -> int:
        """The record of the storage behind a tensor, made if it is new."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._alive:
            record = len(self._size)
            self._size[record] = storage.nbytes()
            self._born_in[record] = self._label[0]
            watcher = weakref.ref(storage, lambda _: self._died(address, record))
            self._alive[address] = (record, watcher)
            self._log[-1][2].append(record)
        return self._alive[address][0]

    def _died(self, address: int, record: int) -> None:
        if self._alive.get(address, (None,))[0] == record:
            del self._alive[address]
        self._log[-1][3].append(record)

    def _entry(self) -> _Entry:
        phase, op = self._label
        return phase, op, [], []

    # -- what came of it ------------------------------------------------------------------------

    def samples(self) -> list[tuple[str, str, dict[str, int]]]:
        """(phase, op, live bytes by category) as each op begins and whenever they change, in order.

        Within one dispatched operation what is born counts before what dies: an old value is there
        until the new one is, so that the highest sum is the allocator's own peak.
        """
        held: dict[str, int] = dict.fromkeys(self._names, 0)
        samples: list[tuple[str, str, dict[str, int]]] = []
        for phase, op, born, died in self._log:
            for records, sign in ((born, 1), (died, -1)):
                for record in records:
                    held[self._category.get(record, "temporaries")] += sign * self._size[record]
                if op and (not samples or samples[-1] != (phase, op, held)):
                    samples.append((phase, op, dict(held)))
        return samples
