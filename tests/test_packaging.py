"""The wheel must hold every folder: optimum-cli finds the command only through the listed packages."""

import configparser
from pathlib import Path

import pytest

import optimum_cpp

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not (ROOT / "setup.cfg").is_file(), reason="needs the source tree")
def test_every_package_is_listed() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    listed = set(setup["options"]["packages"].split())
    found = {
        str(path.parent.relative_to(ROOT)).replace("/", ".") for path in (ROOT / "optimum_cpp").rglob("__init__.py")
    }
    assert listed == found | {"optimum.commands.register"}
    assert not (ROOT / "optimum_cpp" / "commands" / "register" / "__init__.py").exists()


def test_every_public_name_can_be_had() -> None:
    for name in optimum_cpp.__all__:
        assert getattr(optimum_cpp, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = optimum_cpp.nothing


def test_the_register_file_offers_the_command() -> None:
    from optimum.commands.register import register_cpp

    assert [command.COMMAND.name for command in register_cpp.REGISTER_COMMANDS] == ["cpp"]
