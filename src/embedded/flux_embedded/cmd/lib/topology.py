"""What hwloc XML says of a node, for ``flux R encode``."""

from flux_embedded.cmd.lib.errors import CommandError


def read_xml(path):
    """The text of a file of hwloc XML."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror}") from None


def local_xml():
    """The XML of this machine, as ``lstopo`` writes it."""
    import subprocess

    try:
        command = ["lstopo-no-graphics", "--of", "xml"]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise CommandError(
            "encode --local needs lstopo-no-graphics (package hwloc-nox): save its XML and use --hwloc-xml"
        ) from None


def children(xml):
    """The cores and GPUs of a node, {type: bounds}."""
    try:
        from flux.resource.hwloc.amend import topology_from_xml

        _, ncores, ngpus = topology_from_xml(xml)
    except (ImportError, RuntimeError, ValueError) as exc:
        raise CommandError(f"encode: {exc}") from None
    return {"core": [0, ncores], "gpu": [0, ngpus] if ngpus else []}


def amend(robj, xml):
    """R with the topology of its nodes under ``scheduling``."""
    try:
        from flux.resource.TreePool import amend as amend_r

        return amend_r(robj, xml)
    except (ImportError, RuntimeError, ValueError) as exc:
        raise CommandError(f"encode: {exc}") from None
