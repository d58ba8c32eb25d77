"A disk that is full, and one on which a process dies at its k-th operation."
import os, resource, pytest
from contextlib import contextmanager
from pathlib import Path

@contextmanager
def disk_of(n_bytes): # the largest file that can be written stands for the disk
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, old[1]))
    try: yield
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, old)

class Killed(BaseException): "No `except Exception` sees it, and after it no operation works any more."

class Disk:
    "Dies at the k-th operation that changes something; a file that is being written is then half written."
    def __init__(self, patch, k):
        self.left, self.dead, self.patch = k, False, patch
        for name in ("replace", "rename", "mkdir", "rmdir", "unlink", "fsync", "truncate"): self.wrap(os, name)
        for name in ("write_text", "write_bytes"): self.wrap_write(name)
    def operation(self):
        self.left -= not self.dead
        self.dead = self.dead or self.left < 0
        if self.dead: raise Killed
    def wrap_write(self, name):
        real = getattr(Path, name)
        def write(path, data, *args, **kw):
            try: self.operation()
            except Killed:
                if self.left == -1: self.left, _ = -2, real(path, data[:len(data) // 2], *args, **kw)
                raise
            return real(path, data, *args, **kw)
        self.patch.setattr(Path, name, write)
    def wrap(self, module, name):
        real = getattr(module, name)
        def wrapped(*args, **kw):
            self.operation()
            return real(*args, **kw)
        self.patch.setattr(module, name, wrapped)

def dies_at(k, work):
    "Run work() on a disk that dies at the k-th operation; False when it came to its end before."
    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, k)
        try: work()
        except Killed: return True
    return False
