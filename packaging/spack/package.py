# SPDX-License-Identifier: LGPL-3.0-or-later
# A recipe for spack: copy it to packages/flux_scheduler/package.py of a repository of yours (spack repo create).

from spack.package import *


class FluxScheduler(AutotoolsPackage):
    """Schedulers of a Flux instance in Python, and the library to write them with."""

    homepage = "https://flux-framework.org"

    license("LGPL-3.0-or-later")

    # No release is published yet: "spack dev-build", or a source mirror with the tarball of scripts/release. What
    # RELEASE.md says under "Afterwards" adds the address and the checksum here.
    version("0.1.0")

    depends_on("c", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("autoconf", type="build")
    depends_on("automake", type="build")
    depends_on("py-cffi", type="build")
    depends_on("flux-core@0.85:", type=("build", "link", "run"))
    depends_on("python@3.9:", type=("build", "link", "run"))
    depends_on("hwloc@2:")
    depends_on("jansson")

    def autoreconf(self, spec, prefix):
        Executable("./autogen.sh")()

    def configure_args(self):
        return [f"--with-flux={self.spec['flux-core'].prefix}", "--disable-docs"]

    def setup_run_environment(self, env):
        base = self.prefix.lib.join("flux-scheduler")
        env.prepend_path("FLUX_PYTHONPATH_PREPEND", f"{base}/bindings/python")
        for name in ("sched-fifo", "sched-simple", "sched-backfill"):
            env.prepend_path("FLUX_MODULE_PATH_PREPEND", f"{base}/modules/{name}")
        env.prepend_path("FLUX_EXEC_PATH_PREPEND", f"{base}/cmd")
