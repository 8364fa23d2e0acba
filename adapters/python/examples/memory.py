"""Memory that nodes share: an array, and a number that programs raise. Argument: a helper's socket, if it is not the user's own."""

import sys

import numpy as np
import verbena

with verbena.Memory(sys.argv[1] if len(sys.argv) > 1 else None) as memory:
    weights = memory.allocate(1 << 20, "weights", coherence="delta(4)")
    version = weights.put(np.ones(1 << 17))  # any buffer: bytes, arrays of NumPy
    value = memory.find("weights").get()  # bytes that are read where they are
    print(np.frombuffer(memoryview(value), "f8").sum(), value.version == version)
    mine = weights.array("f8", (256, 512))  # an array of one's own, to be changed
    mine[0] *= 2
    weights.store(mine, over=version)  # Conflict, if another was faster
    print(weights.array("f8").sum(), weights)

    visits = memory.allocate(8, "visits")
    while True:
        value = visits.get()
        try:
            visits.put((int.from_bytes(bytes(value), "little") + 1).to_bytes(8, "little"), over=value.version)
            break
        except verbena.Conflict:
            pass
    print(visits.array("<u8"))
    with visits.lock(timeout=10):
        visits.put(bytes(8))
    for segment in (weights, visits):
        segment.release()
