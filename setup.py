"Hands the metadata in settings.ini to setuptools, and puts the notebooks of nbs/ into the wheel."
import re, shutil
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

here = Path(__file__).resolve().parent
ini = ConfigParser(delimiters=["="], interpolation=None)
ini.read(here/"settings.ini", encoding="utf-8")
cfg = ini["DEFAULT"]
lib = cfg["lib_path"]
init = (here/lib/"__init__.py").read_text(encoding="utf-8")
version = re.search(r'^__version__ = "(.+)"$', init, re.M)[1]

class BuildWithNotebooks(build_py):
    "An editable install reads nbs/ in place; a wheel gets a copy in rlhf_nb/nbs."
    def run(self):
        super().run()
        if self.editable_mode: return
        shutil.copytree(here/"nbs", Path(self.build_lib)/lib/"nbs", dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns(".*", "_*", "*.yml", "llms.txt"))

setup(
    version=version,
    author=cfg["author"], author_email=cfg["author_email"],
    license_expression=cfg["license"], keywords=cfg["keywords"].split(),
    classifiers=[f"Development Status :: {cfg['status']}", "Framework :: Jupyter",
                 "Intended Audience :: Education", "Programming Language :: Python :: 3",
                 "Topic :: Scientific/Engineering :: Artificial Intelligence"],
    packages=find_packages(include=[lib, lib+".*"]),
    package_data={lib: ["checkpoints/*/*", "run/recipes/*.toml", "run/bridge/*/*", "show/styles/*.css",
                        "trainers/prompts/*.jinja", "worlds/*.toml", "run/*.toml"]},
    cmdclass={"build_py": BuildWithNotebooks},
    install_requires=cfg["requirements"].split(),
    extras_require={k.removesuffix("_requirements"): v.split()
                    for k, v in cfg.items() if k.endswith("_requirements")},
    entry_points={"console_scripts": cfg["console_scripts"].split(),
                  "pytest11": cfg["pytest_plugins"].split(),
                  "nbdev": [f"{lib}={lib}._modidx:d"]},
)
