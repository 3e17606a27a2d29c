# cython: language_level=3
"""A sentence, and an exit status, in place of a crash where a mapped file became shorter.

``gnnbench.kernels.faults`` says which mappings are watched. ``faults.h`` has the handler.
"""

from libc.stdint cimport uintptr_t

cdef extern from "faults.h":
    int end_status
    int add_region(const char* begin, const char* end, const char* text, size_t length)
    void remove_region(int slot)


def watch(uintptr_t begin, size_t size, bytes text, int status):
    """Have the process write ``text`` to standard error and end with ``status`` where reading the
    ``size`` bytes from ``begin`` on fails. Return the slot, -1 where there is no room."""
    global end_status
    end_status = status
    return add_region(<const char*>begin, <const char*>(begin + size), text, len(text))


def unwatch(int slot):
    """Forget a region."""
    remove_region(slot)
