"""Replays a trace against the policies of published experiments too, and with pods that leave:

    python benchmarks/replay.py --pods CSV --nodes CSV | --synthetic MIX [--synthetic-nodes N]
        [--policy NAME]... [--seed N]... [--load FACTOR] [--ties random|names] [--churn N]
        [--plot SVG] [--json]

As `gpumanager replay`, whose options it has. --plot draws allocation against load, the mean over
the seeds. With --churn N pods come while others leave, so that
requests stay at the load; the allocation is the mean over the second half. The figures of
docs/placement.md are from here.
"""

import argparse
import json
from pathlib import Path

from replay_baselines import Fgd, policies, typical_of
from replay_chart import draw
from replay_churn import Churn, ReplayWithDepartures, steady_allocation

from gpumanager.cli.replay import as_fields, print_report, read_trace, run_replay
from gpumanager.placement.policies import DEFAULT_POLICY
from gpumanager.sim.trace import MIXES, arrange


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Replay a trace against published policies too.")
    parser.add_argument("--pods", type=Path)
    parser.add_argument("--nodes", type=Path)
    parser.add_argument("--synthetic", choices=MIXES)
    parser.add_argument("--synthetic-nodes", type=int, default=200)
    parser.add_argument("--policy", action="append", choices=policies(0))
    parser.add_argument("--seed", action="append", type=int)
    parser.add_argument("--load", type=float, default=1.3)
    parser.add_argument("--ties", choices=("random", "names"), default="random")
    parser.add_argument("--churn", type=int, metavar="N")
    parser.add_argument("--plot", type=Path, metavar="SVG")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    runs = []
    for seed in given.seed or [42]:
        nodes, pods = read_trace(
            given.pods, given.nodes, given.synthetic, given.synthetic_nodes, seed
        )
        workload = arrange(nodes, pods, given.load, seed)
        for name in given.policy or [DEFAULT_POLICY]:
            policy = policies(seed)[name]
            mix = typical_of(workload.pods) if isinstance(policy, Fgd) else None
            replay = ReplayWithDepartures(
                workload, policy, seed, names_decide=given.ties == "names", mix=mix
            )
            steps = Churn(replay, given.load).run(given.churn) if given.churn else None
            run = run_replay(replay, name, given.load, steps)
            if given.churn:
                run = run._replace(allocation=steady_allocation(run.steps), at_full=None)
            runs.append(run)
            if given.json:
                print(json.dumps(as_fields(run)))
    if given.plot:
        names = dict.fromkeys(run.policy for run in runs)
        draw(
            given.plot, {name: [run.steps for run in runs if run.policy == name] for name in names}
        )
    if not given.json:
        print_report(runs)


if __name__ == "__main__":
    main()
