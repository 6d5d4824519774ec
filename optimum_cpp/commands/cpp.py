"""The parent command `optimum-cli cpp`."""

from __future__ import annotations

from optimum.commands.base import BaseOptimumCLICommand, CommandInfo

from .audit import AuditCommand
from .calibrate import CalibrateCommand
from .evaluate import EvaluateCommand
from .monitor import MonitorCommand
from .predict import PredictCommand
from .prune import PruneCommand
from .push import PushCommand
from .quickstart import QuickstartCommand
from .verify import VerifyCommand


class CPPCommand(BaseOptimumCLICommand):  # type: ignore[misc]
    """Calibration-Preserving Pruning."""

    COMMAND = CommandInfo(name="cpp", help="Prune a classifier and keep its prediction sets valid and small.")
    SUBCOMMANDS = (
        CommandInfo("quickstart", "Run the whole pipeline on a small model made here, offline.", QuickstartCommand),
        CommandInfo("prune", "Prune, select on validation, freeze and calibrate.", PruneCommand),
        CommandInfo("evaluate", "Coverage and set size of a folder with a contract.", EvaluateCommand),
        CommandInfo("predict", "Prediction sets for texts.", PredictCommand),
        CommandInfo("calibrate", "A fresh quantile on new data, the model untouched.", CalibrateCommand),
        CommandInfo("verify", "What moved since the contract was written.", VerifyCommand),
        CommandInfo("audit", "Coverage, set size and accuracy in each class and subgroup.", AuditCommand),
        CommandInfo("push", "An output folder to the Hub, in one commit.", PushCommand),
        CommandInfo("monitor", "Whether recent rows still look like the calibration rows.", MonitorCommand),
    )
