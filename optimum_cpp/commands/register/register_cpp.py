"""Found by optimum-cli in the namespace `optimum.commands.register`; it must never break other commands."""

REGISTER_COMMANDS = []

try:
    from optimum_cpp.commands.cpp import CPPCommand

    REGISTER_COMMANDS.append(CPPCommand)
except ImportError as error:
    import sys

    print(f"optimum-cpp cannot offer its commands: {error}", file=sys.stderr)
