"""An accelerator that is only pretended: tensors say pretend:0, obey CUDA's rules, and hold their numbers on the CPU.

    with pretend() as device:          # device.waits: Counter of "kind @ module:line"
        model = device.move(model)     # weights "on the GPU"
        ...                            # mixing devices raises RuntimeError as CUDA does

Counted is every point where the host waits for the device: reading a number, copying a tensor to the CPU, copying
one to the device unless non_blocking, and operations whose result has a size that only the device knows."""
import collections, sys, torch
from contextlib import contextmanager
from pathlib import Path
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

class _Module(backend_registration._DummyBackendModule):
    "What torch asks about the backend: there is no such device, so that whatever runs later in this process is as before."
    def is_available(self): return False
    def device_count(self): return 0

# torch knows it as the one backend that may be written in Python; from then on it can be named, for good
if not hasattr(torch, "pretend"): backend_registration._setup_privateuseone_for_python_backend("pretend", _Module())
DEVICE, CPU = torch.device("pretend", 0), torch.device("cpu")
# operations that take tensors of two devices, beside those with a 0-dim one of the CPU
MIXED = {"copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_", "set_"}
# operations whose result has a size, or is a number, that the host must know
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_dim",
         "unique_consecutive", "bincount"}
MATMUL = {torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__}
HERE = str(Path(__file__).resolve().parents[1]/"rlhf_nb")

class OnDevice(torch.Tensor):
    "A tensor of the pretended device; `elem` holds the numbers."
    @staticmethod
    def __new__(cls, elem):
        self = torch.Tensor._make_wrapper_subclass(cls, elem.shape, strides=elem.stride(), dtype=elem.dtype, device=DEVICE,
            storage_offset=elem.storage_offset(), layout=elem.layout)
        self.elem = elem.detach()
        return self
    def __repr__(self, **_): return f"OnDevice({self.elem})"
    def __deepcopy__(self, memo):
        copied = OnDevice(self.elem.clone())
        if isinstance(self, torch.nn.Parameter): copied = torch.nn.Parameter(copied, self.requires_grad)
        return memo.setdefault(id(self), copied)
    def tolist(self):
        _now().wait("tolist")
        return self.elem.tolist()
    def numpy(self, *_, **__): raise TypeError("can't convert pretend:0 device type tensor to numpy")
    def data_ptr(self): return self.elem.data_ptr()
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None): return _compute(func, args, kwargs or {})

class DeviceGenerator(torch.Generator):
    "A generator of the pretended device."
    device = property(lambda self: DEVICE)

_active = []
def _now(): return _active[-1]

class Device:
    "What has happened on a pretended device."
    def __init__(self): self.waits = collections.Counter()
    def wait(self, kind):
        frame = sys._getframe(1)
        while frame and not frame.f_code.co_filename.startswith(HERE): frame = frame.f_back
        place = f"{Path(frame.f_code.co_filename).stem}:{frame.f_lineno}" if frame else "a test"
        self.waits[f"{kind} @ {place}"] += 1
    @property
    def n_waits(self): return sum(self.waits.values())
    def move(self, x):
        "A module whose weights are changed in place, or anything with `.to`."
        if not isinstance(x, torch.nn.Module): return x.to(DEVICE)
        for part in x.modules():
            for name, p in part._parameters.items():
                if p is not None and not isinstance(p, OnDevice):
                    part._parameters[name] = torch.nn.Parameter(OnDevice(p.data), p.requires_grad)
            for name, b in part._buffers.items():
                if b is not None and not isinstance(b, OnDevice): part._buffers[name] = OnDevice(b)
        return x

def _leaves(x)->list: # as torch's own pytree does, in a third of the time
    if isinstance(x, dict): x = list(x.values())
    return [z for y in x for z in _leaves(y)] if isinstance(x, (list, tuple)) else [x]
def _mapped(fn, x):
    if isinstance(x, dict): return {k: _mapped(fn, y) for k, y in x.items()}
    if isinstance(x, (list, tuple)): return (list if isinstance(x, list) else tuple)(_mapped(fn, y) for y in x)
    return fn(x)

def _is_here(x): return isinstance(x, OnDevice)
def _raw(x): return x.elem if _is_here(x) else x

def _refuse(name, args, kwargs, tensors):
    "CUDA's rules on where the arguments of one operation may be."
    here = [x for x in tensors if _is_here(x)]
    away = [x for x in tensors if not _is_here(x) and (x.dim() or name in ("stack", "cat"))]
    if here and away and name not in MIXED: raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, pretend:0 and cpu! ({name})")
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        places = [x for x in args[1] if x is not None]
        if not _is_here(args[0]) and any(map(_is_here, places)): raise RuntimeError(
            "indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        if name != "index" and _is_here(args[0]) != _is_here(args[2]) and args[2].dim(): raise RuntimeError(
            f"{name}: value and self are on different devices")

def _count(name, args, kwargs, here, to_device):
    wait, free = _now().wait, kwargs.get("non_blocking", False)
    if here and name in WAITS: wait(name)
    if here and name == "repeat_interleave" and kwargs.get("output_size") is None: wait(name)
    if name == "_to_copy" and kwargs.get("device") is not None:
        if here and not to_device: wait("copy to the CPU")
        if not here and to_device and not free: wait("copy to the device")
    if name == "copy_" and _is_here(args[0]) != _is_here(args[1]):
        if not _is_here(args[0]): wait("copy to the CPU")
        elif args[1].dim() and not (free or len(args) > 2 and args[2]): wait("copy to the device")
    if name.startswith(("index", "_index_put")) and _is_here(args[0]) and isinstance(args[1], (list, tuple)):
        for x in args[1]:
            if x is not None and x.dtype in (torch.bool, torch.uint8): wait("index by a mask")
            elif x is not None and not _is_here(x): wait("copy to the device")

def _compute(func, args, kwargs):
    name, leaves = func._schema.name.split("::")[1], _leaves((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    here, wanted = [x for x in tensors if _is_here(x)], kwargs.get("device")
    to_device = bool(here) if wanted is None else torch.device(wanted).type == "pretend"
    _refuse(name, args, kwargs, tensors)
    _count(name, args, kwargs, here, to_device)
    raw_args, raw = _mapped(_raw, (args, kwargs))
    if wanted is not None: raw["device"] = CPU
    if raw.pop("pin_memory", None) is not None: raw["pin_memory"] = False
    out = func(*raw_args, **raw)
    same = {id(x.elem): x for x in here}                 # an operation in place gives back what it was given
    def wrap(x):
        if not isinstance(x, torch.Tensor) or _is_here(x): return x
        return same.get(id(x)) if id(x) in same else OnDevice(x) if to_device else x
    return _mapped(wrap, out)

class _Dispatch(TorchDispatchMode):
    "Also factories such as `torch.zeros(device=...)`, which bring no tensor of the device."
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves, wanted = _leaves((args, kwargs)), kwargs.get("device")
        if any(map(_is_here, leaves)) or wanted is not None and torch.device(wanted).type == "pretend":
            return _compute(func, args, kwargs)
        return func(*args, **kwargs)

class _Functions(TorchFunctionMode):
    """Generators must be where the numbers are wanted; torch.tensor(..., device=...) makes a tensor on the CPU and
    copies it."""
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [x for x in _leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        wanted = torch.device(kwargs.get("device") or (tensors[0].device if tensors else CPU))
        generator = kwargs.get("generator")
        if generator is not None and isinstance(generator, DeviceGenerator) != (wanted.type == "pretend"): raise RuntimeError(
            f"Expected a '{wanted.type}' device type for generator but found '{generator.device.type}'")
        if func in MATMUL and len(tensors) == 2 and args[0].dim() == 1 and args[1].dim() == 2:
            return args[1].T.mv(args[0])                 # torch's own takes an axis away in place, which a wrapper cannot
        if func not in (torch.tensor, torch.as_tensor) or wanted.type != "pretend" or tensors: return func(*args, **kwargs)
        x = func(*args, **kwargs | dict(device=None))
        if x.numel(): _now().wait("copy to the device")
        return OnDevice(x)

@contextmanager
def pretend():
    "Inside, the device pretend:0 can be used as if it were there; gives a `Device`."
    _active.append(Device())
    try:
        with _Dispatch(), _Functions(): yield _now()
    finally: _active.pop()
