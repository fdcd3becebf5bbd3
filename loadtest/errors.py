"""What a user can do something about."""


class LoadtestError(Exception):
    """A run that cannot go on; the message is one line for the user, the exit code is 2."""


class ConfigError(LoadtestError):
    """A bad option, prompt file, trace, or TOML entry."""


class ServerUnavailableError(LoadtestError):
    """The server did not answer at all, or did not become ready."""


class BusyMachineError(LoadtestError):
    """The load of the machine is above the threshold: figures taken now would be noise."""


class MissingPlotsError(LoadtestError):
    """Plots were asked for and matplotlib is not installed."""
