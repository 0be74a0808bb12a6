"""Builds c4_torch against the torch that is installed: `pip install --no-build-isolation --no-deps python/c4_torch`."""

from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = Path(__file__).resolve().parent
SOURCES = sorted(str(source.relative_to(HERE)) for source in (HERE / "csrc").glob("*.cc"))


class Build(BuildExtension):
    """Beside the extension, which torch it was built for: another one may not even load it."""

    def run(self):
        super().run()
        built = Path(self.get_ext_fullpath("c4_torch._C")).parent / "_build.py"
        built.write_text(f'TORCH = "{torch.__version__}"\n')


setup(
    ext_modules=[
        CppExtension(
            "c4_torch._C",
            SOURCES,
            include_dirs=[str(HERE.parents[1] / "ccl" / "include")],
            extra_compile_args=["-O2", "-g0", "-Wall", "-fvisibility=hidden"],
            libraries=["dl"],
        )
    ],
    cmdclass={"build_ext": Build},
    packages=["c4_torch", "c4_train"],
    package_dir={"c4_torch": ".", "c4_train": "../c4_train"},
)
