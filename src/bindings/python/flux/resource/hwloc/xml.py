# SPDX-License-Identifier: LGPL-3.0-or-later
"""hwloc XML to a tree of plain objects (hwloc 2.x formats 1 and 2).

``load_xml(text)`` returns a ``Machine``: the objects that libhwloc makes of the document, with CPU
sets as integers. The document is loaded as the description of another machine: important I/O
objects are kept, instruction caches if they add structure, and all else as by libhwloc's defaults.

libhwloc trusts its input: some documents make it abort or exhaust memory. So each document is read
in a child process, which sends the objects back; whatever happens to the child, the caller gets a
tree or a ``RuntimeError``. The binding (``_flux_hwloc``) is imported only here, and only to read
XML.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import resource
import signal
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Optional
from xml.etree import ElementTree

# Limits on the child process of one document: libhwloc loops or exhausts memory on some. A topology
# of 4,096 cores takes well under a second and 100 MB.
MAX_CPU_SECONDS = 30
MAX_MEMORY_BYTES = 1 << 30
MAX_XML_BYTES = 256 << 20

# libhwloc reads the environment. Only variables of its installation stay: others, such as
# HWLOC_THISSYSTEM, would mix this machine into the described one.
KEEP_ENVIRONMENT = ("HWLOC_PLUGINS_PATH", "HWLOC_LIBXML", "HWLOC_LIBXML_IMPORT")

#: ``(type, index, row of the parent, neither memory nor I/O, CPU set as text, memory, backend)``
Row = tuple[str, int, Optional[int], bool, Optional[str], int, Optional[str]]

OBJECT_TYPES = frozenset(
    "System Machine Package Socket Die Core PU Group NUMANode Node Cache Bridge PCIDev OSDev Misc"
    " L1Cache L2Cache L3Cache L4Cache L5Cache L1iCache L2iCache L3iCache MemCache".split()
)


@dataclass(eq=False, repr=False)
class Object:
    """An hwloc object.

    Attributes:
        type (str): hwloc's name (``Package``, ``NUMANode``, ``OSDev``...).
        index (int): logical index within its type.
        cpuset (int or None): CPU set as a bit mask, or None; an infinite set is a negative number.
        memory (int): local bytes of a NUMA node.
        backend (str or None): ``Backend`` info of an OS device.
        parent (Object or None): the object above.
        children (list): the objects below, except memory and I/O.
    """

    type: str
    index: int
    cpuset: int | None = None
    memory: int = 0
    backend: str | None = None
    parent: Object | None = None
    children: list[Object] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"{self.type}[{self.index}]"


class Machine:
    """A loaded topology.

    Attributes:
        root (Object): the whole machine.
        cores, numas, pcis, osdevs (list): the objects of these types, in logical order.
        objects (list): all objects, each after its parent.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.objects: list[Object] = []
        by_type: dict[str, list[Object]] = {}
        for type_, index, parent, is_child, cpuset, memory, backend in rows:
            up = None if parent is None else self.objects[parent]
            mask = None if cpuset is None else parse_taskset(cpuset)
            obj = Object(type_, index, mask, memory, backend, up)
            if up is not None and is_child:
                up.children.append(obj)
            self.objects.append(obj)
            by_type.setdefault(type_, []).append(obj)
        for group in by_type.values():
            group.sort(key=lambda obj: obj.index)
        self.root = self.objects[0]
        self.cores = by_type.get("Core", [])
        self.numas = by_type.get("NUMANode", [])
        self.pcis = by_type.get("PCIDev", [])
        self.osdevs = by_type.get("OSDev", [])


def parse_taskset(text: str) -> int:
    """Parse a CPU set printed by libhwloc for taskset: ``0x..``, or infinite ``0xf...f..``."""
    if text.startswith("0xf...f"):
        low = text[len("0xf...f") :]
        return (int(low, 16) if low else 0) - (1 << 4 * len(low))
    return int(text, 16)


def load_xml(text: Any) -> Machine:
    """Read hwloc XML, a ``str``, into a Machine. Raises RuntimeError if libhwloc cannot read it
    (the text names the fault, as far as known), or the binding is missing."""
    lib = _binding()
    if not isinstance(text, str):
        raise RuntimeError(f"hwloc XML does not load: expected a str, got {type(text).__name__}")
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as exc:  # from "surrogateescape", of other bytes
        raise RuntimeError("hwloc XML does not load: it is not UTF-8 text") from exc
    if b"\0" in data:
        raise RuntimeError("hwloc XML does not load: there is a NUL in the text")
    if len(data) > MAX_XML_BYTES:
        raise RuntimeError(f"hwloc XML does not load: it is larger than {MAX_XML_BYTES >> 20} MiB")
    answer = _in_child(lib, data)
    if "rows" not in answer:
        reason = _diagnose(data) or answer["error"]
        raise RuntimeError(f"hwloc XML does not load: {reason}")
    return Machine(answer["rows"])


def _binding() -> Any:
    try:
        import _flux_hwloc

        if not hasattr(_flux_hwloc, "lib"):
            # In a source tree, its directory is a package of this name.
            raise ImportError("it was not built")
    except ImportError as exc:
        raise RuntimeError(
            f"cannot read hwloc XML: the _flux_hwloc extension is not there ({exc}); it is built by"
            " make where libhwloc 2.x and its headers are installed (Debian: libhwloc-dev)"
        ) from exc
    return _flux_hwloc


def _in_child(binding: Any, data: bytes) -> dict[str, Any]:
    """Return the result of ``_read()`` for a document in a forked child, or the child's failure
    (``error``)."""
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        # The child only calls libhwloc and writes to its pipe, without taking locks of other
        # threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:  # pragma: no cover (in the child)
        status = 1
        try:
            os.close(readable)
            _confine()
            with os.fdopen(writable, "wb") as pipe:
                pipe.write(json.dumps(_read(binding, data)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        text = pipe.read()
    try:
        end = os.waitpid(pid, 0)[1]
    except ChildProcessError:
        end = None  # the host reaps children itself; the answer suffices
    try:
        # A truncated answer is not JSON: the child died while writing.
        answer: dict[str, Any] = json.loads(text.decode())
        return answer
    except ValueError:
        pass
    if end is not None and os.WIFSIGNALED(end):
        name = signal.Signals(os.WTERMSIG(end)).name
        return {"error": f"libhwloc gave up on it ({name})"}
    return {"error": "libhwloc gave up on it"}


def _confine() -> None:  # pragma: no cover (in the child)
    """Limit the child's resources, and its output to the answer."""
    faulthandler.disable()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_CPU, MAX_CPU_SECONDS)
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        _lower(resource.RLIMIT_AS, used + MAX_MEMORY_BYTES)
    except OSError:
        pass  # not Linux, or no /proc: the time limit has to do
    for name in list(os.environ):
        if name.startswith("HWLOC_") and name not in KEEP_ENVIRONMENT:
            del os.environ[name]


def _lower(which: int, value: int) -> None:  # pragma: no cover (in the child)
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, hard))


def _read(binding: Any, data: bytes) -> dict[str, Any]:
    """Load ``data`` with libhwloc: {"rows": [...]} in document order, or {"error": text}."""
    ffi, lib = binding.ffi, binding.lib
    handle = ffi.new("hwloc_topology_t *")
    if lib.hwloc_topology_init(handle) < 0:
        return {"error": "libhwloc cannot be initialised"}
    topology = handle[0]
    lib.hwloc_topology_set_io_types_filter(topology, lib.HWLOC_TYPE_FILTER_KEEP_IMPORTANT)
    lib.hwloc_topology_set_icache_types_filter(topology, lib.HWLOC_TYPE_FILTER_KEEP_STRUCTURE)
    if lib.hwloc_topology_set_xmlbuffer(topology, data, len(data) + 1) < 0:
        return {"error": "libhwloc does not recognise it as a topology"}
    if lib.hwloc_topology_load(topology) < 0:
        return {"error": "libhwloc cannot make a topology of it"}
    return walk(binding, topology)


def walk(binding: Any, topology: Any) -> dict[str, Any]:
    """Return rows of ``Machine`` for a loaded topology, parents first."""
    ffi, lib = binding.ffi, binding.lib
    root = lib.hwloc_get_root_obj(topology)
    if not root.cpuset:
        return {"error": "the machine has no CPU set"}
    rows: list[Row] = []
    todo: list[tuple[Any, int | None, bool]] = [(root, None, True)]
    processors = 0
    while todo:
        obj, parent, is_child = todo.pop()
        position = len(rows)
        rows.append(_row(ffi, lib, obj, parent, is_child))
        processors += obj.type == lib.HWLOC_OBJ_PU
        below: list[tuple[Any, int | None, bool]] = []
        for first in (obj.memory_first_child, obj.first_child, obj.io_first_child):
            are_children = first == obj.first_child
            while first:
                below.append((first, position, are_children))
                first = first.next_sibling
        todo.extend(reversed(below))
    if not processors:
        return {"error": "the machine has no processors"}
    return {"rows": rows}


def _row(ffi: Any, lib: Any, obj: Any, parent: int | None, is_child: bool) -> Row:
    cpuset = None
    if obj.cpuset:
        text = ffi.new("char **")
        lib.hwloc_bitmap_taskset_asprintf(text, obj.cpuset)
        cpuset = ffi.string(text[0]).decode()
        lib.free(text[0])
    backend = None
    if obj.type == lib.HWLOC_OBJ_OS_DEVICE:
        value = lib.hwloc_obj_get_info_by_name(obj, b"Backend")
        backend = ffi.string(value).decode("utf-8", "replace") if value else None
    name = {lib.HWLOC_OBJ_PCI_DEVICE: "PCIDev", lib.HWLOC_OBJ_OS_DEVICE: "OSDev"}.get(obj.type)
    if name is None:
        name = ffi.string(lib.hwloc_obj_type_string(obj.type)).decode()
    memory = lib.flux_hwloc_local_memory(obj)
    return (name, obj.logical_index, parent, is_child, cpuset, memory, backend)


def _diagnose(data: bytes) -> str | None:
    """Return the fault of a document that did not load; None if its XML shows none."""
    root, kinds = None, dict[Any, None]()
    try:
        for _, element in ElementTree.iterparse(io.BytesIO(data), ("start",)):
            if root is None:
                root = element
            elif element.tag == "object":
                kinds[element.get("type")] = None
    except ElementTree.ParseError as exc:
        return "it is empty" if not data.strip() else f"not well-formed XML: {exc}"
    except (LookupError, ValueError) as exc:
        return f"its encoding is not usable: {exc}"
    if root is None or root.tag not in ("topology", "root"):
        return f"its root element is <{root.tag if root is not None else ''}>, not <topology>"
    version = root.get("version", "1.0")
    if not version.startswith(("1.", "2.")):
        return (
            f"format {version} is not one that libhwloc 2 reads: export it with"
            " 'lstopo --export-xml-flags v2'"
        )
    if not kinds:
        return "it has no objects"
    odd = next((kind for kind in kinds if kind not in OBJECT_TYPES), None)
    if odd is not None:
        return f"unknown object type '{odd}'"
    return None if "PU" in kinds else "the machine has no processors"
