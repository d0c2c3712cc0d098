#!/usr/bin/env python3
"""Trains on a Ray cluster: one `mpretrain launch` on each of its machines.

    scripts/launch/ray_launch.py --nodes 2 --ranks 8 -- --config 350m_fp8.json --resume auto
    ray job submit --working-dir . -- scripts/launch/ray_launch.py --ranks 8 -- --config ...

The exit code is that of the first machine on which the run failed.
"""

import argparse
import os
import socket
import subprocess
import sys


def run(options):
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    def address_and_port():
        with socket.create_server(("", 0)) as server:
            return f"{ray.util.get_node_ip_address()}:{server.getsockname()[1]}"

    ray.init()
    cpus, gpus = (options.ranks * each for each in (options.cpus_per_rank, options.gpus_per_rank))
    group = placement_group([{"CPU": cpus, "GPU": gpus}] * options.nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready())

    def start(task, node, *arguments):
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node)
        kinds = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0}
        return ray.remote(scheduling_strategy=place, **kinds)(task).remote(*arguments)

    meeting = [f"--master={ray.get(start(address_and_port, 0))}", f"--run-id={group.id.hex()}"]
    launch = [options.program, "launch", f"--ranks={options.ranks}", f"--nodes={options.nodes}"]
    running = []
    for node in range(options.nodes):
        command = [*launch, *meeting, f"--node={node}", "--", *options.arguments]
        running.append(start(subprocess.call, node, command))
    while running:
        [ended], running = ray.wait(running)
        if code := ray.get(ended):
            sys.exit(code)


if __name__ == "__main__":
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--nodes", type=int, default=1, help="machines; default: 1")
    parser.add_argument("--ranks", type=int, required=True, help="ranks on each machine")
    parser.add_argument("--cpus-per-rank", type=int, default=1, help="default: 1")
    parser.add_argument("--gpus-per-rank", type=int, default=1, help="0: train on CPUs")
    parser.add_argument("--program", default=os.environ.get("MPRETRAIN", "mpretrain"))
    parser.add_argument("arguments", nargs="+", help="after --: the options of mpretrain train")
    run(parser.parse_args())
