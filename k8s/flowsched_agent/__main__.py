"""``python -m flowsched_agent``: the same as ``flowsched agent``."""

from __future__ import annotations

from flowsched.cli import main
from flowsched_agent.commands.agent import agent

if __name__ == "__main__":
    main(agent, "flowsched agent")
