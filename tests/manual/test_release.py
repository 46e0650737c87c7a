"""``tools/package.py``, which ``make package`` and ``make release`` run."""

import configparser


from tests.support.docs.pages import ROOT, load

package = load("tools/package.py")


def test_each_extra_is_installed_or_for_developers() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    groups = [set(package.EXTRAS) - {""}, set(package.LARGE_EXTRAS), package.FOR_DEVELOPERS]
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert set().union(*groups) == set(settings["options.extras_require"])


def test_each_module_of_ours_that_is_imported_exists() -> None:
    """A module that was moved is seen here, not by ``make package`` alone."""
    names = {name for modules in (package.EXTRAS | package.LARGE_EXTRAS).values()
             for name in modules if name.partition(".")[0] in ("nsqclient", "pyspark_nsq")}
    paths = [ROOT / name.replace(".", "/") for name in sorted(names)]
    assert [path for path in paths
            if not path.with_suffix(".py").is_file()
            and not (path / "__init__.py").is_file()] == []
